"""Transactions: several changes that are made together or not at all. See also test_several_changes.py."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointError,
    CheckpointManager,
    CheckpointNotFound,
    CheckpointTooNew,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    Event,
    EventKind,
    ManagerClosed,
    TransactionFailed,
    UnstorableValue,
)
from checkpointmanager.testing import Call, damage, failing, watching

from ..contents import names
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager


def loaded(manager: LeaseManager) -> dict[str, Lease]:
    return {key: found.data for key, found in manager.load().checkpoints.items()}


def longer(lease: Lease) -> Lease:
    lease.seconds += 1
    return lease


def test_it_creates_updates_and_removes(manager: LeaseManager) -> None:
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("going", OLD)

    with manager.transaction() as transaction:
        transaction.update_checkpoint("a", longer)
        transaction.create_checkpoint("b", NEW)
        transaction.remove_checkpoint("going")
        transaction.remove_checkpoint("never-there")
        assert len(transaction) == 4
        assert loaded(manager) == {"a": OLD, "going": OLD}, "nothing happens before the block ends"

    assert loaded(manager) == {"a": Lease("old", 61), "b": NEW}
    assert {key: found.generation for key, found in transaction.written.items()} == {"a": 2, "b": 1}
    assert transaction.written["a"].data == Lease("old", 61)
    previous = manager.previous_checkpoint("a")
    assert previous
    assert previous.data == OLD


def test_changes_of_one_key_are_made_one_after_the_other(manager: LeaseManager) -> None:
    manager.create_checkpoint("a", OLD)
    given = Lease("given")

    with manager.transaction() as transaction:
        transaction.update_checkpoint("a", longer)
        transaction.update_checkpoint("a", longer)
        transaction.update_checkpoint("b", lambda _: pytest.fail("what is replaced later is not called"))
        transaction.create_checkpoint("b", given)
        transaction.update_checkpoint("b", longer)
        transaction.create_checkpoint("c", OLD)
        transaction.remove_checkpoint("c")
        transaction.remove_checkpoint("d")
        transaction.update_checkpoint("d", longer, Lease("default"))

    assert loaded(manager) == {"a": Lease("old", 62), "b": Lease("given", 61), "d": Lease("default", 61)}
    assert given == Lease("given"), "a change function gets a value of its own"
    assert manager.get_checkpoint("a").generation == 2


def test_what_a_change_function_raises_goes_to_the_caller_and_nothing_is_changed(manager: LeaseManager) -> None:
    manager.create_checkpoint("b", OLD)

    with pytest.raises(ZeroDivisionError), manager.transaction() as transaction:
        transaction.create_checkpoint("a", NEW)
        transaction.update_checkpoint("b", lambda lease: Lease(lease.holder, 1 // 0))

    assert loaded(manager) == {"b": OLD}


def syncs(calls: list[Call]) -> list[str]:
    return [call.name for call in calls if call.name in ("fsync", "fdatasync")]


@pytest.mark.parametrize("members", [1, 2, 130])
def test_it_takes_one_sync_however_many_members_it_has(manager: LeaseManager, directory: Path, members: int) -> None:
    manager.create_checkpoint("first", OLD)  # makes the journal
    with watching(directory) as calls, manager.transaction() as transaction:
        for number in range(members):
            transaction.create_checkpoint(f"k{number}", OLD)
        transaction.remove_checkpoint("first")

    assert syncs(calls) == ["fdatasync"]


@pytest.mark.parametrize("members", [1, 3])
def test_a_file_that_cannot_be_written_fails_all_of_it(manager: LeaseManager, directory: Path, members: int) -> None:
    manager.create_checkpoint("k0", OLD)
    with failing(directory, "write", errno.ENOSPC, nth=members), pytest.raises(TransactionFailed) as failed:  # noqa: SIM117
        with manager.transaction() as transaction:
            for number in range(members):
                transaction.create_checkpoint(f"k{number}", NEW)

    assert (failed.value.key, failed.value.in_doubt, failed.value.errno) == (f"k{members - 1}", False, errno.ENOSPC)
    assert loaded(manager) == {"k0": OLD}
    assert names(directory, ".tmp-") == []


@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_what_is_durable_is_acknowledged_although_it_is_not_in_place_yet(
    manager: LeaseManager, directory: Path, events: list[Event], call: str
) -> None:
    for key in "ac":
        manager.create_checkpoint(key, OLD)
    with failing(directory, call, errno.EIO, lasting=True), manager.transaction() as transaction:
        transaction.create_checkpoint("a", NEW)
        transaction.create_checkpoint("b", NEW)
        transaction.remove_checkpoint("c")

    assert {event.kind for event in events} == {EventKind.UNSETTLED}
    assert "Input/output error: its change is safe in the journal" in events[0].detail
    assert loaded(manager) == {"a": NEW, "b": NEW}
    assert manager.create_checkpoint("a", Lease("next")).generation == 3
    manager.close()
    with CheckpointManager(directory, LEASES) as again:
        assert loaded(again) == {"a": Lease("next"), "b": NEW}


def spoiled(manager: LeaseManager, directory: Path, spoil: Callable[[Path, str], object]) -> None:
    manager.create_checkpoint("b", OLD)
    spoil(directory, "b")


def newer(directory: Path, key: str) -> None:
    damage.make_too_new(directory, key)


FAILURES: dict[str, tuple[Callable[[LeaseManager, Path], object], type[CheckpointError]]] = {
    "missing": (lambda manager, directory: None, CheckpointNotFound),
    "damaged": (lambda manager, directory: spoiled(manager, directory, damage.truncate), CorruptCheckpoint),
    "too new": (lambda manager, directory: spoiled(manager, directory, newer), CheckpointTooNew),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_cannot_be_updated_changes_nothing_and_is_named(manager: LeaseManager, directory: Path, name: str) -> None:
    spoil, cause = FAILURES[name]
    spoil(manager, directory)

    with pytest.raises(TransactionFailed) as failed, manager.transaction() as transaction:
        transaction.create_checkpoint("a", NEW)
        transaction.update_checkpoint("b", longer)

    assert isinstance(failed.value.__cause__, cause)
    assert (failed.value.key, failed.value.in_doubt) == ("b", False)
    assert str(failed.value).startswith(str(directory / "b.json"))
    assert "none of the transaction's changes was made" in str(failed.value)
    assert "a" not in manager


@pytest.mark.parametrize("value", [None, Lease(7)])  # type: ignore[arg-type]
def test_what_a_change_function_must_not_return_changes_nothing(manager: LeaseManager, value: Lease) -> None:
    with pytest.raises(TransactionFailed) as failed, manager.transaction() as transaction:
        transaction.create_checkpoint("a", NEW)
        transaction.update_checkpoint("b", lambda _: value, NEW)

    assert isinstance(failed.value.__cause__, UnstorableValue)
    assert "a" not in manager


@pytest.mark.parametrize("remove", [True, False])
def test_a_folder_in_a_checkpoints_place_fails_all_of_it(real_directory: Path, remove: bool) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
    damage.replace_by_directory(real_directory, "a")
    (real_directory / "a.json" / "inside").write_text("something")

    with CheckpointManager(real_directory, LEASES) as manager:
        with pytest.raises(TransactionFailed, match="move it away") as failed, manager.transaction() as transaction:
            if remove:
                transaction.remove_checkpoint("a")
            else:
                transaction.create_checkpoint("a", NEW)
            transaction.create_checkpoint("b", NEW)

        assert (failed.value.key, failed.value.in_doubt) == ("a", False)
        assert list(manager) == ["a"]
    assert (real_directory / "a.json" / "inside").read_text() == "something"


def test_a_transaction_that_no_journal_could_hold_is_refused(
    manager: LeaseManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkpointmanager._filestore.store.LARGEST_BYTES", 1000)
    manager.create_checkpoint("a", OLD)

    with pytest.raises(TransactionFailed, match=r"over the limit of 1000; use batch\(\)") as failed:  # noqa: SIM117
        with manager.transaction() as transaction:
            transaction.remove_checkpoint("a")
            for key in "bcd":
                transaction.create_checkpoint(key, Lease("x" * 300))

    assert (failed.value.errno, failed.value.in_doubt) == (errno.E2BIG, False)
    assert list(manager) == ["a"]


def test_a_closed_manager_and_a_reader_refuse(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    manager.close()
    with pytest.raises(ManagerClosed), manager.transaction() as transaction:
        transaction.remove_checkpoint("a")
    with CheckpointManager(directory, LEASES, read_only=True) as reader:
        with pytest.raises(CheckpointWriteFailed, match="read_only"), reader.transaction() as transaction:
            transaction.remove_checkpoint("a")
            transaction.create_checkpoint("b", OLD)
        assert loaded(reader) == {"a": OLD}
