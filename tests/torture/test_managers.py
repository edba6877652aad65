"""Writers killed at random moments and at every step: what they acknowledged is kept, again and again.

The directory is the same for all kills of a test, so what one left behind is what the next one starts from.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, FileStore, Put, Remove

from ..checkpointmanager.journal import Journal
from ..checkpointmanager.processes import LIMIT, Child
from ..checkpointmanager.programs import die_before_call, write_without_end
from ..long import times
from .programs import COUNTER, batch_without_end, count_without_end, write_in_threads

Program = Callable[..., None]

KILLS = times(8, 2500)  # of each program
STEPS = range(1, times(121, 1501), times(7, 1))  # kills come before these system calls
ROUNDS = times(2, 400)
SHARERS = 3


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "claims"


def _check(directory: Path, journal: Journal) -> None:
    """A new owner finds all that was acknowledged, everything whole, and nothing unfinished."""
    with CheckpointManager(directory) as manager:
        assert _unfinished(directory) == []
        assert not manager.verify().problems
        assert journal.losses(manager) == []


def _unfinished(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith(".tmp-")]


PROGRAMS: dict[str, Program] = {
    "one by one": write_without_end,
    "atomic": partial(write_without_end, durability="atomic"),
    "sharing": partial(write_without_end, sharing=True),
    "batches": batch_without_end,
    "threads": write_in_threads,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_kills_at_random_moments_lose_nothing_that_was_acknowledged(directory: Path, program: Program) -> None:
    dice, journal, amid = random.Random(5), Journal(), 0
    for kill in range(KILLS * 20):
        if kill >= KILLS and amid:
            break
        with Child(partial(program, directory, seed=kill, first=journal.last + 1)) as writer:
            journal.follow(writer, acknowledgements=dice.randrange(1, 6), seconds=dice.random() * 0.002)
            writer.kill()
            assert writer.wait() == -signal.SIGKILL
            journal.read(writer.read_to_end())
        amid += bool(_unfinished(directory))
        _check(directory, journal)
    assert journal.acknowledged >= KILLS
    assert amid, "no kill came during a write, so this shows nothing"


@pytest.mark.usefixtures("no_waiting_for_the_disk")
@pytest.mark.parametrize("program", [write_without_end, batch_without_end], ids=["one by one", "batches"])
def test_kills_before_each_system_call_lose_nothing_that_was_acknowledged(directory: Path, program: Program) -> None:
    journal = Journal()
    for step in STEPS:
        work = partial(program, directory, seed=step, first=journal.last + 1)
        with Child(_dying(directory, step, work)) as writer:
            journal.read(writer.read_to_end())
            assert writer.wait() == -signal.SIGKILL
        if directory.exists():
            _check(directory, journal)
    assert journal.acknowledged > len(STEPS) // 10


def _dying(directory: Path, step: int, work: Callable[[int], object]) -> Callable[[int], None]:
    return lambda say: die_before_call(step, directory.parent, partial(work, say))


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
    journal, losses = Journal(), 0
    for step in STEPS:
        work = partial(write_without_end, directory, seed=step, first=journal.last + 1)
        with (
            mock.patch.object(FileStore, "commit", _overwrite_in_place),
            Child(_dying(directory, step, work)) as writer,
        ):
            journal.read(writer.read_to_end())
            assert writer.wait() == -signal.SIGKILL
        with CheckpointManager(directory) as manager:
            losses += len(journal.losses(manager))
            for key in manager.verify().problems:
                manager.remove_checkpoint(key)
    assert losses


def test_sharers_that_are_killed_lose_no_count_and_stop_no_other(directory: Path) -> None:
    """Each adds one to the same checkpoint; a count that was acknowledged and is missing was overwritten or lost."""
    dice, begun, done = random.Random(5), 0, 0
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint(COUNTER, 0)
    for _ in range(ROUNDS):
        sharers = [Child(partial(count_without_end, directory)) for _ in range(SHARERS)]
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
