"""Writers killed at random moments and at every step: what they acknowledged is kept, again and again.

The directory is the same for all kills of a test, so what one left behind is what the next one starts from.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, FileStore, Put, Remove

from ..checkpointmanager.contents import names
from ..checkpointmanager.processes import LIMIT, Child
from ..checkpointmanager.programs import die_before_call
from ..checkpointmanager.writers import Reports, write_without_end
from ..long import times

KILLS = times(8, 2500)  # of each program
STEPS = range(1, times(121, 1501), times(7, 1))  # kills come before these system calls
ROUNDS = times(2, 400)
SHARERS = 3
COUNTER = "counter"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "claims"


def _check(directory: Path, reports: Reports) -> None:
    """A new owner finds all that was acknowledged, everything whole, and nothing unfinished."""
    with CheckpointManager(directory) as manager:
        assert names(directory, ".tmp-") == []
        assert reports.losses(manager) == []


WRITERS: dict[str, dict[str, Any]] = {
    "owner": {},
    "threads": {"threads": 4},
    "sharer": {"sharing": True},
    "atomic": {"durability": "atomic"},
}


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS)
def test_kills_at_random_moments_lose_nothing_that_was_acknowledged(directory: Path, options: dict[str, Any]) -> None:
    dice, reports, amid = random.Random(5), Reports(), 0
    for kill in range(KILLS * 20):
        if kill >= KILLS and amid:
            break
        with Child(partial(write_without_end, directory, first=reports.last + 1, **options)) as writer:
            reports.follow(writer, acknowledgements=dice.randrange(1, 6), seconds=dice.random() * 0.002)
            writer.kill()
            assert writer.wait() == -signal.SIGKILL
            reports.read(writer.read_to_end())
        amid += bool(names(directory, ".tmp-"))
        _check(directory, reports)
    assert reports.acknowledged >= KILLS
    assert amid, "no kill came during a write, so this shows nothing"


def _killed_at_each_step(directory: Path, reports: Reports, **options: Any) -> Iterator[None]:
    """One life of the writer after another, each killed before a later system call than the one before."""
    for step in STEPS:
        work = partial(write_without_end, directory, first=reports.last + 1, **options)
        with Child(lambda say, n=step, w=work: die_before_call(n, directory.parent, partial(w, say))) as writer:  # type: ignore[misc]
            reports.read(writer.read_to_end())
            assert writer.wait() == -signal.SIGKILL
        yield


@pytest.mark.usefixtures("no_waiting_for_the_disk")
@pytest.mark.parametrize("options", [WRITERS[name] for name in ("owner", "sharer")], ids=["owner", "sharer"])
def test_kills_before_each_system_call_lose_nothing_that_was_acknowledged(
    directory: Path, options: dict[str, Any]
) -> None:
    reports = Reports()
    for _ in _killed_at_each_step(directory, reports, **options):
        if directory.exists():
            _check(directory, reports)
    assert reports.acknowledged > len(STEPS) // 10


def _overwrite_in_place(
    store: FileStore, changes: Sequence[Put | Remove], *, together: bool = False
) -> Mapping[str, Exception]:
    for change in changes:
        if isinstance(change, Remove):
            Path(store.path_of(change.key)).unlink(missing_ok=True)
            continue
        descriptor = os.open(store.path_of(change.key), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(descriptor, change.blob)
        os.fsync(descriptor)
        os.close(descriptor)
    return {}


@pytest.mark.usefixtures("no_waiting_for_the_disk")
def test_the_same_kills_do_find_a_writer_that_overwrites_in_place(directory: Path) -> None:
    reports, losses = Reports(), 0
    with mock.patch.object(FileStore, "commit", _overwrite_in_place):
        for _ in _killed_at_each_step(directory, reports):
            with CheckpointManager(directory) as manager:
                losses += len(reports.losses(manager))
                for key in manager.verify().problems:
                    manager.remove_checkpoint(key)
    assert losses


def _count_without_end(directory: Path, say: int) -> None:
    with CheckpointManager(directory, sharing=True) as manager:
        while True:
            os.write(say, b"begin\n")
            manager.update_checkpoint(COUNTER, lambda number: number + 1)
            os.write(say, b"done\n")


def test_sharers_that_are_killed_lose_no_count_and_stop_no_other(directory: Path) -> None:
    """Each adds one to the same checkpoint; a count that was acknowledged and is missing was overwritten or lost."""
    dice, begun, done = random.Random(5), 0, 0
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint(COUNTER, 0)
    for _ in range(ROUNDS):
        sharers = [Child(partial(_count_without_end, directory)) for _ in range(SHARERS)]
        dice.shuffle(sharers)
        for sharer in sharers:  # the remaining ones continue
            output = b""
            while output.count(b"done") < 2:
                piece = sharer.read(LIMIT)
                assert piece, "a sharer has ended, or waits for a dead one"
                output += piece
            sharer.kill()
            output += sharer.read_to_end()
            begun += output.count(b"begin\n")
            done += output.count(b"done\n")
            os.close(sharer.said)
    with CheckpointManager(directory) as manager:
        counted = manager.get_checkpoint(COUNTER)
    assert done <= counted.data <= begun
    assert done >= 2 * SHARERS * ROUNDS
    assert counted.generation == counted.data + 1
