"""A transaction that is committed but not finished: what readers see, who finishes it, and what may go wrong."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointTooNew,
    CheckpointWriteFailed,
    DirectoryLocked,
    DirectoryUnusable,
    Event,
    EventKind,
    TransactionFailed,
)
from checkpointmanager._format.envelope import checksum_of
from checkpointmanager.testing import Call, failing, watching

from ..contents import names
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..signals import in_time
from ..three_keys import (
    AFTER,
    BEFORE,
    as_a_reader_sees_it,
    check_reopened,
    check_that_it_goes_on,
    filled,
    transact,
    values,
)
from .test_interrupts import killed

pytestmark = pytest.mark.usefixtures("kit_standing_by", "no_waiting_for_the_disk")

by_sharing = pytest.mark.parametrize("sharing", [False, True], ids=["owner", "sharer"])


def unfinished(directory: Path, *, sharing: bool = False) -> LeaseManager:
    """The record is durable, and the first of the names has changed."""
    manager = filled(directory, sharing=sharing)
    with (
        failing(directory, "rename", errno.EIO, about="b.json"),
        pytest.raises(TransactionFailed, match="is committed") as failed,
    ):
        transact(manager)
    assert (failed.value.committed, failed.value.in_doubt, failed.value.key) == (True, False, "b")
    assert ".transaction" in names(directory)
    return manager


def test_writers_of_other_keys_do_not_wait_for_a_transaction(real_directory: Path) -> None:
    written: list[int] = []
    with filled(real_directory) as manager:
        transact(manager)

        def write_another(call: Call) -> None:
            """In another thread, when the transaction is committed and about to change its names."""
            if call.name == "rename" and call.about.endswith(" a.json"):
                written.append(in_time(lambda: manager.create_checkpoint("d", NEW)).generation)

        with watching(real_directory, before=write_another), manager.transaction() as transaction:
            transaction.create_checkpoint("a", OLD)
            transaction.create_checkpoint("b", OLD)
        assert written == [1]


@by_sharing
def test_an_unfinished_transaction_blocks_its_keys_and_no_others(real_directory: Path, sharing: bool) -> None:
    with unfinished(real_directory, sharing=sharing) as manager:
        assert values(manager) == AFTER == as_a_reader_sees_it(real_directory)
        assert "c" not in manager
        assert manager.previous_checkpoint("c") is None
        with failing(real_directory, "rename", errno.EIO, about=".transaction", lasting=True):
            blocked: list[Callable[[], object]] = [
                lambda: manager.create_checkpoint("b", OLD),
                lambda: manager.update_checkpoint("a", lambda lease: lease),
                lambda: manager.remove_checkpoint("c"),
                lambda: manager.recover_checkpoint("a"),
            ]
            for change in blocked:
                with pytest.raises(CheckpointWriteFailed, match="earlier transaction is committed") as refused:
                    change()
                assert not refused.value.in_doubt
            with pytest.raises(TransactionFailed, match="earlier transaction is committed"):  # noqa: SIM117
                with manager.transaction() as transaction:
                    transaction.create_checkpoint("e", OLD)
                    transaction.create_checkpoint("f", OLD)
            manager.create_checkpoint("d", NEW)
        assert values(manager) == AFTER | {"d": NEW}

        manager.update_checkpoint("b", lambda lease: Lease(lease.holder, 7))

        assert values(manager) == AFTER | {"d": NEW, "b": Lease("new", 7)}
        assert names(real_directory, ".t") == []


def test_one_that_another_process_left_is_finished_by_a_sharer_of_the_directory(real_directory: Path) -> None:
    with (
        unfinished(real_directory, sharing=True),
        CheckpointManager(real_directory, LEASES, sharing=True) as other,
    ):
        assert names(real_directory, ".t") == [], "finished at the open"
        assert values(other) == AFTER


def test_a_sharer_that_was_open_before_finishes_it_too(tmp_path: Path) -> None:
    directory = tmp_path / "leases"
    with filled(directory, sharing=True) as other:
        record = directory / ".transaction"
        with CheckpointManager(directory, LEASES, sharing=True) as manager:
            with failing(directory, "rename", errno.EIO, about="b.json"), pytest.raises(TransactionFailed):
                transact(manager)
            assert record.exists()
            other.create_checkpoint("d", NEW)
            assert record.exists(), "the key of this write is none of its keys"
            assert values(other) == AFTER | {"d": NEW}

            assert other.update_checkpoint("b", lambda lease: Lease(lease.holder, 7)).generation == 2

            assert names(directory, ".t") == []
            assert values(manager) == AFTER | {"d": NEW, "b": Lease("new", 7)}
            manager.create_checkpoint("a", OLD)
            assert values(other)["a"] == OLD


def test_the_next_owner_finishes_it_and_says_so(real_directory: Path) -> None:
    unfinished(real_directory).close()
    events: list[Event] = []

    with CheckpointManager(real_directory, LEASES, on_event=events.append) as manager:
        assert values(manager) == AFTER
        previous = manager.previous_checkpoint("a")
        assert previous
        assert previous.data == OLD
    assert [event.detail for event in events if event.kind is EventKind.TRANSACTION_FINISHED] == [
        "finished a transaction of 3 changes that an earlier process had committed"
    ]
    assert names(real_directory) == [".lock", ".previous-a", "a.json", "b.json"]


def open_and_close(directory: Path) -> None:
    CheckpointManager(directory, LEASES).close()


def test_finishing_it_may_be_killed_at_any_call_and_is_done_again(tmp_path: Path) -> None:
    for nth in itertools.count(1):
        directory = tmp_path / str(nth) / "leases"
        unfinished(directory).close()
        died = killed(directory.parent, nth, open_and_close, directory)
        assert as_a_reader_sees_it(directory) == AFTER
        check_reopened(directory, AFTER)
        if not died:
            break
    assert nth > 40


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
def test_finishing_it_may_fail_at_any_call_and_is_done_again(tmp_path: Path, number: int, lasting: bool) -> None:
    finished_without_room = 0
    for nth in itertools.count(1):
        directory = tmp_path / str(nth) / "leases"
        unfinished(directory).close()
        with failing(directory.parent, failure=OSError(number, "made up"), nth=nth, lasting=lasting) as injector:
            try:
                open_and_close(directory)
                finished_without_room += injector.failed is not None
            except (DirectoryUnusable, DirectoryLocked) as error:
                error.__traceback__ = None
        assert as_a_reader_sees_it(directory) == AFTER
        check_reopened(directory, AFTER)
        if injector.failed is None:
            break
    assert nth > 40
    assert lasting or finished_without_room > 3


def test_on_a_full_disk_it_is_finished_with_the_existing_files(real_directory: Path) -> None:
    """All writes are refused, and opening the directory still finishes what was committed."""
    unfinished(real_directory).close()

    with failing(real_directory, "write", errno.ENOSPC, lasting=True), CheckpointManager(real_directory, LEASES) as m:
        assert values(m) == AFTER
    assert names(real_directory, ".t") == []


def by_hand(directory: Path, name: str, blob: bytes | None) -> None:
    if blob is None:
        (directory / name).unlink()
    else:
        (directory / name).write_bytes(blob)


def test_what_was_removed_by_hand_before_it_was_finished_stays_removed(real_directory: Path) -> None:
    manager = filled(real_directory)
    with failing(real_directory, "link", errno.EIO), pytest.raises(TransactionFailed, match="is committed"):
        transact(manager)
    manager.close()
    by_hand(real_directory, "a.json", None)

    assert as_a_reader_sees_it(real_directory) == {"b": NEW}
    with CheckpointManager(real_directory, LEASES) as again:
        assert values(again) == {"b": NEW}


def test_what_was_damaged_before_it_was_finished_is_kept(real_directory: Path) -> None:
    manager = filled(real_directory)
    with failing(real_directory, "link", errno.EIO), pytest.raises(TransactionFailed, match="is committed"):
        transact(manager)
    manager.close()
    by_hand(real_directory, "a.json", b"rubbish")

    assert as_a_reader_sees_it(real_directory) == AFTER
    with CheckpointManager(real_directory, LEASES) as again:
        assert values(again) == AFTER
        previous = again.previous_checkpoint("a")
        assert previous
        assert previous.data == Lease("oldest")
    (kept,) = (real_directory / ".quarantine").iterdir()
    assert kept.read_bytes() == b"rubbish"


def test_a_record_with_one_flipped_bit_is_finished_all_the_same(real_directory: Path) -> None:
    unfinished(real_directory).close()
    record = real_directory / ".transaction"
    blob = bytearray(record.read_bytes())
    blob[len(blob) // 2] ^= 1
    record.write_bytes(blob)

    check_reopened(real_directory, AFTER)


@pytest.mark.parametrize("blob", [b"rubbish", b"\0" * 300], ids=["rubbish", "nul"])
def test_a_damaged_record_is_an_event_and_everything_goes_on(real_directory: Path, blob: bytes) -> None:
    """The one limit: the content of the record is lost, and half of its changes may have been made."""
    unfinished(real_directory).close()
    by_hand(real_directory, ".transaction", blob)
    events: list[Event] = []

    with CheckpointManager(real_directory, LEASES, on_event=events.append) as manager:
        check_that_it_goes_on(manager, real_directory)
    assert [event.kind for event in events if event.path.endswith(".transaction")] == [EventKind.DAMAGE]


def test_an_empty_record_is_of_a_transaction_that_was_taken_back(real_directory: Path) -> None:
    filled(real_directory).close()
    by_hand(real_directory, ".transaction", b"")

    check_reopened(real_directory, BEFORE)


def test_a_record_of_a_newer_release_is_left_alone_and_not_ignored(real_directory: Path) -> None:
    unfinished(real_directory).close()
    record = real_directory / ".transaction"
    body = record.read_bytes()[36:].replace(b'"format":1', b'"format":2', 1)
    record.write_bytes(checksum_of(body) + body)

    with pytest.raises(CheckpointTooNew, match="format 2"):
        CheckpointManager(real_directory, LEASES)
    with CheckpointManager(real_directory, LEASES, read_only=True) as reader:
        reads = (lambda: reader.get_checkpoint("a"), reader.list_checkpoints, reader.load, lambda: "a" in reader)
        for read in reads:
            with pytest.raises(DirectoryUnusable, match=r"\.transaction: .*format 2.*the release that wrote it"):
                read()

    assert record.exists()


def test_a_removal_whose_sync_failed_is_made_anew(real_directory: Path) -> None:
    """So that the checkpoint does not come back after another change removes the same key."""
    manager = filled(real_directory)
    with failing(real_directory, "fsync", errno.EIO, nth=5), pytest.raises(TransactionFailed) as failed:
        transact(manager)
    assert failed.value.committed
    assert (real_directory / "c.json").exists(), "put back, so that the removal can be repeated"
    assert values(manager) == AFTER

    calls: list[Call] = []
    with watching(real_directory, after=calls.append):
        manager.remove_checkpoint("c")
    manager.close()

    taken = [call for call in calls if call.name == "rename" and call.about.startswith("c.json")]
    assert len(taken) == 1
    assert calls.index(taken[0]) < max(number for number, call in enumerate(calls) if call.name == "fsync")
    assert not os.path.lexists(real_directory / "c.json")
