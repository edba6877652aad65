"""When the directory cannot be synced, a change is visible but perhaps not durable: say so, and never rely on it."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import BatchFailed, CheckpointManager, CheckpointWriteFailed
from checkpointmanager.testing import Call, failing, watching

from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..scenarios import data_of


@pytest.fixture
def manager(real_directory: Path) -> Iterator[LeaseManager]:
    with CheckpointManager(real_directory, LEASES) as manager:
        yield manager


Unsynced = Callable[[], AbstractContextManager[object]]


@pytest.fixture
def unsynced(real_directory: Path) -> Unsynced:
    """No sync of the directory succeeds; syncs of files do."""
    return partial(failing, real_directory, "fsync", about=".", lasting=True)


CHANGES: dict[str, Callable[[LeaseManager], object]] = {
    "create": lambda manager: manager.create_checkpoint("a", NEW),
    "update": lambda manager: manager.update_checkpoint("a", lambda _: NEW),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_error_says_that_the_outcome_is_in_doubt(manager: LeaseManager, change: str, unsynced: Unsynced) -> None:
    manager.create_checkpoint("a", OLD)

    with unsynced(), pytest.raises(CheckpointWriteFailed, match="may not survive a power loss") as caught:
        CHANGES[change](manager)

    assert (caught.value.in_doubt, caught.value.errno, caught.value.key) == (True, errno.EIO, "a")
    assert isinstance(caught.value.__cause__, OSError)
    assert data_of(manager) == NEW


@pytest.mark.parametrize("first", CHANGES)
@pytest.mark.parametrize("again", CHANGES)
def test_the_same_value_is_written_again_until_it_is_durable(
    manager: LeaseManager, first: str, again: str, unsynced: Unsynced, real_directory: Path
) -> None:
    manager.create_checkpoint("a", OLD)
    for generation in (2, 3, 4):
        with unsynced(), pytest.raises(CheckpointWriteFailed):
            CHANGES[first](manager)
        assert manager.get_checkpoint("a").generation == generation

    with watching(real_directory) as calls:
        CHANGES[again](manager)

    synced = [call.name for call in calls if call.name in ("write", "fsync", "rename")]
    assert synced[:2] == ["write", "fsync"], "through a fresh file"
    assert synced[-2:] == ["rename", "fsync"]
    assert manager.get_checkpoint("a").generation == 5
    assert manager.create_checkpoint("a", NEW).unchanged


def test_the_old_value_after_a_write_in_doubt_is_written_as_well(manager: LeaseManager, unsynced: Unsynced) -> None:
    manager.create_checkpoint("a", OLD)
    with unsynced(), pytest.raises(CheckpointWriteFailed):
        manager.create_checkpoint("a", NEW)

    assert not manager.create_checkpoint("a", OLD).unchanged
    assert data_of(manager) == OLD


def test_an_interrupt_between_rename_and_sync_is_in_doubt_too(manager: LeaseManager, real_directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    with failing(real_directory, "fsync", KeyboardInterrupt(), about="."), pytest.raises(KeyboardInterrupt):
        manager.create_checkpoint("a", NEW)

    assert data_of(manager) == NEW
    assert not manager.create_checkpoint("a", NEW).unchanged


def test_a_removal_in_doubt_is_synced_when_it_is_repeated(
    manager: LeaseManager, unsynced: Unsynced, real_directory: Path
) -> None:
    manager.create_checkpoint("a", OLD)
    with unsynced(), pytest.raises(CheckpointWriteFailed) as caught:
        manager.remove_checkpoint("a")
    assert caught.value.in_doubt
    assert data_of(manager) == OLD, "the removal is taken back"

    with unsynced(), pytest.raises(CheckpointWriteFailed):
        manager.remove_checkpoint("a")
    with watching(real_directory) as calls:
        manager.remove_checkpoint("a")
    changed = [call.name for call in calls if call.about.startswith("a.json") or call.name == "fsync"]
    assert changed[-2:] == ["rename", "fsync"]
    assert "a" not in manager


def test_a_removal_in_doubt_does_not_make_the_next_create_unchanged(manager: LeaseManager, unsynced: Unsynced) -> None:
    manager.create_checkpoint("a", OLD)
    with unsynced(), pytest.raises(CheckpointWriteFailed):
        manager.remove_checkpoint("a")

    created = manager.create_checkpoint("a", OLD)

    assert (created.unchanged, created.generation) == (False, 2)
    assert data_of(manager) == OLD


def test_every_write_of_a_batch_that_waited_for_the_sync_is_in_doubt(manager: LeaseManager, unsynced: Unsynced) -> None:
    manager.create_checkpoint("same", OLD)
    manager.create_checkpoint("going", OLD)

    with unsynced(), pytest.raises(BatchFailed) as caught, manager.batch() as batch:
        batch.create_checkpoint("a", NEW)
        batch.create_checkpoint("b", NEW)
        batch.create_checkpoint("same", OLD)
        batch.remove_checkpoint("going")

    assert caught.value.in_doubt
    assert caught.value.failures.keys() == {"a", "b", "going"}
    assert all(isinstance(error, CheckpointWriteFailed) and error.in_doubt for error in caught.value.failures.values())
    assert manager.create_checkpoint("same", OLD).unchanged
    assert not manager.create_checkpoint("a", NEW).unchanged
    with manager.batch() as batch:
        batch.create_checkpoint("b", NEW)
    assert manager.get_checkpoint("b").generation == 2


def test_a_failed_sync_of_one_thread_puts_those_in_doubt_that_renamed_before_it(
    manager: LeaseManager, unsynced: Unsynced, real_directory: Path
) -> None:
    """The kernel reports a lost write once per descriptor, so the writer that gets the error must warn the others."""
    others: list[CheckpointWriteFailed] = []

    def write_another() -> None:
        with unsynced(), pytest.raises(CheckpointWriteFailed) as other:
            manager.create_checkpoint("b", NEW)
        others.append(other.value)

    another = threading.Thread(target=write_another)

    def another_comes_between(call: Call) -> None:
        if call.name == "rename" and call.concerns("a.json"):
            another.start()
            another.join()

    with watching(real_directory, after=another_comes_between), pytest.raises(CheckpointWriteFailed) as caught:
        manager.create_checkpoint("a", NEW)

    assert caught.value.in_doubt
    assert caught.value.__cause__ is others[0].__cause__
    assert not manager.create_checkpoint("a", NEW).unchanged
    assert manager.create_checkpoint("a", NEW).unchanged, "a failure of the past does not haunt later writes"


def test_durability_atomic_syncs_the_data_and_not_the_names(real_directory: Path, unsynced: Unsynced) -> None:
    with CheckpointManager(real_directory, LEASES, durability="atomic") as manager:
        with watching(real_directory) as calls:
            manager.create_checkpoint("a", OLD)
        assert manager.create_checkpoint("a", OLD).unchanged
        assert [call.name for call in calls].count("fsync") == 1
        with unsynced():
            manager.create_checkpoint("a", NEW)
            manager.remove_checkpoint("a")


def test_a_data_sync_that_failed_is_not_repeated_and_the_file_not_used(
    manager: LeaseManager, real_directory: Path
) -> None:
    manager.create_checkpoint("a", OLD)
    with (
        failing(real_directory, "fsync", lasting=True) as injector,
        pytest.raises(CheckpointWriteFailed, match="the old content is still in place") as caught,
    ):
        manager.create_checkpoint("a", NEW)

    (failed,) = [call for call in injector.calls if call.name == "fsync"]
    assert not caught.value.in_doubt
    assert not any(call.name in ("rename", "link") for call in injector.calls)
    assert Call("close", failed.about) in injector.calls
    assert data_of(manager) == OLD


def test_repeating_a_create_that_was_refused_before_the_rename_is_no_doubt_at_all(
    manager: LeaseManager, real_directory: Path
) -> None:
    with failing(real_directory, "rename", errno.EDQUOT, lasting=True):
        for _ in range(2):
            with pytest.raises(CheckpointWriteFailed) as caught:
                manager.create_checkpoint("a", Lease("a"))
            assert (caught.value.in_doubt, caught.value.errno) == (False, errno.EDQUOT)
    assert "a" not in manager


def test_a_failed_sync_is_not_missed_by_a_writer_whose_own_sync_succeeded_meanwhile(manager: LeaseManager) -> None:
    """The kernel reports the failure to one of two overlapping syncs, and that one may be slow to pass it on."""
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("b", OLD)
    fsync = os.fsync
    first, other_is_done = threading.Lock(), threading.Event()
    fails = threading.Event()

    def fail_once(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            fsync(descriptor)
        elif first.acquire(blocking=False):
            fails.set()
            other_is_done.wait(0.5)  # must not be set before this sync has failed, so this wait times out
            raise OSError(errno.EIO, "Input/output error")

    def write(key: str) -> bool:
        with pytest.raises(CheckpointWriteFailed) as caught:
            manager.create_checkpoint(key, NEW)
        return caught.value.in_doubt

    with mock.patch.object(os, "fsync", fail_once), ThreadPoolExecutor(2) as pool:
        one = pool.submit(write, "a")
        assert fails.wait(20)
        other = pool.submit(write, "b")
        other.add_done_callback(lambda _: other_is_done.set())
        assert one.result(20)
        assert other.result(20)
