"""The power of real file systems is cut under writers: what they acknowledged is there. Needs root; else skipped.

Between cuts writers are killed, and owners open and close in the same boot. A reader without an owner judges each state
before the next owner does. The same cuts must catch protocols that are known to be wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointError, CheckpointManager

from ...long import times
from ..processes import Child
from ..volume import Volume, mounted_volume
from ..writers import Reports, write_without_end

THREADS = 8
CUTS = times(6, 1000)
CUTS_THAT_SHOW_A_LOSS = 60  # at most; usually the first few show it
KINDS = ("ext4", "ext4-writeback", "ext4-inline", "ext4-no-journal", "xfs")

Manager = CheckpointManager[Any]


@pytest.fixture
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Volume]:
    with mounted_volume(tmp_path, getattr(request, "param", "ext4")) as volume:
        yield volume


def losses_of_a_cut(volume: Volume, reports: Reports, seed: int, **options: Any) -> list[str]:
    """Kill some writers, then cut the power under one, and compare what is found with what was acknowledged."""
    directory = volume.path / "claims"
    dice = random.Random(seed)
    found: list[str] = []
    for kill in range(dice.randrange(3)):
        with Child(partial(write_without_end, directory, first=reports.last + 1, **options)) as writer:
            reports.follow(writer, acknowledgements=dice.randrange(1, 60), seconds=0)
            writer.kill()
            reports.read(writer.read_to_end())
        if kill:  # an owner in between; else the next writer takes over itself
            with CheckpointManager[Any](directory) as manager:
                found += reports.losses(manager)
    with Child(partial(write_without_end, directory, first=reports.last + 1, **options)) as writer:
        reports.follow(writer, acknowledgements=dice.randrange(1, 200), seconds=dice.choice((0, 0.003)) * dice.random())
        volume.cut()
        writer.kill()
        reports.read(writer.read_to_end(), acknowledgements=False)
    volume.remount()
    if directory.exists():
        with CheckpointManager[Any](directory, read_only=True) as reader:
            seen = {key: each.data for key, each in reader.load().checkpoints.items()}
        with CheckpointManager[Any](directory) as manager:
            if seen != {key: each.data for key, each in manager.load().checkpoints.items()}:
                found.append("a reader without an owner saw something else than the next owner")
            found += reports.losses(manager)
    return found


WRITERS: dict[str, dict[str, Any]] = {"threads": {"threads": THREADS}, "sharer": {"sharing": True}}


@pytest.mark.timeout(300 + 5 * CUTS)
@pytest.mark.parametrize(
    ("volume", "writer"), [*((kind, "threads") for kind in KINDS), ("ext4", "sharer")], indirect=["volume"]
)
def test_no_power_cut_loses_what_was_acknowledged(volume: Volume, writer: str) -> None:
    reports = Reports()
    for cut in range(CUTS):
        assert losses_of_a_cut(volume, reports, cut, **WRITERS[writer]) == [], f"at cut {cut}"
    assert reports.acknowledged > CUTS


# Proofs: the parts of the protocol that cuts can show are left out, one at a time.


def _sync_nothing(*_: object) -> None:
    pass


def _settle_no_files() -> AbstractContextManager[Any]:
    """A settle that syncs no files, with a journal that is full at once."""
    stack = ExitStack()
    stack.enter_context(mock.patch("checkpointmanager._filestore.journal.sync_files", _sync_nothing))
    stack.enter_context(mock.patch("checkpointmanager._filestore.journal.DIRTY_KEYS", 4))
    return stack


def _settle_before_apply() -> AbstractContextManager[Any]:
    """A settle that takes for settled what other threads are about to put in place."""
    stack = ExitStack()
    stack.enter_context(mock.patch("checkpointmanager._filestore.owed.Owed.committed", _none))
    stack.enter_context(mock.patch("checkpointmanager._filestore.journal.DIRTY_KEYS", 4))
    return stack


def _none(_: object) -> list[Any]:
    return []


WRONG: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no sync of the journal": lambda: mock.patch("checkpointmanager._filestore.journalfile.sync_data", _sync_nothing),
    "no sync of settled files": _settle_no_files,
    "a settle that does not wait": _settle_before_apply,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_same_cuts_do_lose_something_where_the_protocol_is_wrong(volume: Volume, wrong: str) -> None:
    reports = Reports()
    with WRONG[wrong]():
        losses = (losses_of_a_cut(volume, reports, cut, **WRITERS["threads"]) for cut in range(CUTS_THAT_SHOW_A_LOSS))
        assert any(losses)


@pytest.mark.parametrize("options", [{}, {"sharing": True}], ids=["owner", "sharer"])
@pytest.mark.parametrize("volume", ["xfs", "ext4"], indirect=True)
def test_a_file_system_that_has_shut_down_never_acknowledges(volume: Volume, options: dict[str, Any]) -> None:
    """On xfs the sync of a directory still returns 0 then; only that of a file fails."""
    directory = volume.path / "claims"
    manager: Manager = CheckpointManager(directory, **options)
    for key in "abc":
        manager.create_checkpoint(key, "old")
    volume.cut()
    changes: list[Callable[[], object]] = [
        lambda: manager.create_checkpoint("new", 1),
        lambda: manager.update_checkpoint("a", lambda _: "new"),
        lambda: manager.remove_checkpoint("b"),
        lambda: manager.remove_checkpoint("absent"),
    ]
    for change in changes * 2:
        with pytest.raises((CheckpointError, OSError)):
            change()
    with pytest.raises(CheckpointError), manager.transaction() as transaction:
        transaction.create_checkpoint("a", "new")
        transaction.create_checkpoint("c", "new")
    with pytest.raises(CheckpointError), manager.batch() as batch:
        batch.create_checkpoint("a", "new")
        batch.remove_checkpoint("c")
    manager.close()
    with pytest.raises(CheckpointError):
        CheckpointManager(directory, **options)
    volume.remount()
    with CheckpointManager[Any](directory) as again:
        assert {key: again.get_checkpoint(key).data for key in "abc"} == dict.fromkeys("abc", "old")
        assert "new" not in again
