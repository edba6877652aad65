"""A sync that failed leaves a doubt: the error says so, nothing relies on it, and the next change ends it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

import pytest

from checkpointmanager import (
    BatchFailed,
    CheckpointError,
    CheckpointExists,
    CheckpointManager,
    CheckpointWriteFailed,
    TransactionFailed,
)
from checkpointmanager.testing import failing, watching

from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..scenarios import BEFORE, CHANGES, as_after_a_kill, data_of, known, values

pytestmark = pytest.mark.usefixtures("kit_standing_by", "no_waiting_for_the_disk")

Unsynced = Callable[[], AbstractContextManager[object]]
SINGLE = ("create", "overwrite", "update", "remove")


@pytest.fixture
def manager(real_directory: Path) -> Iterator[LeaseManager]:
    """With the checkpoints of BEFORE."""
    with known(real_directory) as manager:
        yield manager


@pytest.fixture
def unsynced(real_directory: Path) -> Unsynced:
    """The next sync of the journal fails."""
    return partial(failing, real_directory, "fdatasync")


def single_errors(error: CheckpointWriteFailed) -> list[CheckpointError]:
    return list(error.failures.values()) if isinstance(error, BatchFailed) else [error]


@pytest.mark.parametrize("name", CHANGES)
def test_the_error_says_that_the_outcome_is_in_doubt_and_the_old_value_is_served(
    manager: LeaseManager, unsynced: Unsynced, name: str
) -> None:
    failed = {"batch": BatchFailed, "transaction": TransactionFailed}.get(name, CheckpointWriteFailed)
    with unsynced(), pytest.raises(CheckpointWriteFailed) as caught:
        CHANGES[name].act(manager)
    assert type(caught.value) is failed
    assert (caught.value.in_doubt, caught.value.errno) == (True, errno.EIO)
    for error in single_errors(caught.value):
        assert isinstance(error, CheckpointWriteFailed)
        assert (error.in_doubt, error.errno, "repeat" in str(error)) == (True, errno.EIO, True)
        assert isinstance(error.__cause__, OSError)
    assert values(manager) == BEFORE


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("again", ["the same", "another key", "nothing but a question"])
def test_the_doubt_lasts_until_the_next_change_and_a_kill_may_decide_it_either_way(
    manager: LeaseManager, unsynced: Unsynced, real_directory: Path, name: str, again: str
) -> None:
    change, tmp_path = CHANGES[name], real_directory.parent
    with unsynced(), pytest.raises((CheckpointWriteFailed, TransactionFailed, BatchFailed)):
        change.act(manager)
    assert as_after_a_kill(real_directory, tmp_path) in (BEFORE, change.after)
    assert values(manager) == BEFORE
    if again == "the same":
        change.act(manager)
        expected = change.after
    elif again == "another key":
        manager.create_checkpoint("new", NEW)
        expected = BEFORE | {"new": NEW}
    else:
        expected = BEFORE
    assert values(manager) == expected
    if again != "nothing but a question":
        assert as_after_a_kill(real_directory, tmp_path) == expected, "the doubt is over"
    manager.close()
    with CheckpointManager(real_directory, LEASES) as reopened:
        assert values(reopened) == expected


@pytest.mark.parametrize(
    "question",
    [
        lambda manager: manager.create_checkpoint("a", OLD),
        lambda manager: manager.create_checkpoint("a", NEW, overwrite=False),
        lambda manager: manager.remove_checkpoint("absent"),
        lambda manager: manager.update_checkpoint("a", lambda lease: lease),
    ],
    ids=["unchanged", "kept", "absent", "updated to the same"],
)
def test_a_call_that_would_change_nothing_ends_the_doubt_first(
    manager: LeaseManager,
    unsynced: Unsynced,
    real_directory: Path,
    tmp_path: Path,
    question: Callable[[LeaseManager], object],
) -> None:
    """It must not acknowledge a state that a crash takes back."""
    with unsynced(), pytest.raises(CheckpointWriteFailed):
        manager.create_checkpoint("a", NEW)
    with suppress(CheckpointExists):
        question(manager)
    assert as_after_a_kill(real_directory, tmp_path) == BEFORE


def test_while_the_settle_fails_changes_fail_for_certain(
    manager: LeaseManager, unsynced: Unsynced, real_directory: Path, tmp_path: Path
) -> None:
    with unsynced(), pytest.raises(CheckpointWriteFailed):
        manager.create_checkpoint("a", NEW)
    with failing(real_directory, "fsync", lasting=True):
        for change in (CHANGES["create"], CHANGES["remove"]):
            with pytest.raises(CheckpointWriteFailed, match="nothing was changed") as caught:
                change.act(manager)
            assert not caught.value.in_doubt
    assert values(manager) == BEFORE
    manager.create_checkpoint("a", Lease("next"))
    assert as_after_a_kill(real_directory, tmp_path) == BEFORE | {"a": Lease("next")}


@pytest.mark.parametrize("name", SINGLE)
def test_a_sharer_whose_directory_cannot_be_synced_is_in_doubt(real_directory: Path, name: str) -> None:
    known(real_directory).close()
    change = CHANGES[name]
    with CheckpointManager(real_directory, LEASES, sharing=True) as manager:
        data_of(manager)
        broken = failing(real_directory, "fsync", about=".")
        with broken, pytest.raises(CheckpointWriteFailed) as caught:
            change.act(manager)
        assert caught.value.in_doubt
        with watching(real_directory) as calls:
            change.act(manager)
        assert ("fsync", ".") in [(call.name, call.about) for call in calls]
        assert values(manager) == change.after


def test_durability_atomic_needs_no_sync_of_names(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES, durability="atomic") as manager:
        with failing(real_directory, "fsync", about=".", lasting=True):
            manager.create_checkpoint("a", OLD)
            manager.create_checkpoint("a", NEW)
            manager.remove_checkpoint("a")
        assert "a" not in manager


def test_without_room_for_a_journal_a_file_that_cannot_be_synced_fails_alone(real_directory: Path) -> None:
    with CheckpointManager(real_directory) as manager:
        no_room = failing(real_directory, "write", errno.ENOSPC, nth=3, lasting=True)  # after the two new files
        failed_sync = failing(real_directory, "fsync", errno.EIO)
        with no_room, failed_sync, pytest.raises(BatchFailed) as failed, manager.batch() as batch:
            batch.create_checkpoint("a", 1)
            batch.create_checkpoint("b", 1)
        assert (len(failed.value.failures), failed.value.in_doubt) == (1, False)
        assert manager.list_checkpoints() == sorted({"a", "b"} - failed.value.failures.keys())
