"""What fails while a file is recycled, and systems that cannot do it: nothing is lost, and nobody notices."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import BatchFailed, CheckpointManager, CheckpointWriteFailed
from checkpointmanager._filestore.commit import Commit
from checkpointmanager.testing import Killed, failing

from ..contents import names
from ..processes import run_together
from ..recycling import Manager, previous_of, put, recycles, written_twice

pytestmark = pytest.mark.usefixtures("stood_in_for")


@pytest.fixture
def directory(recyclable_directory: Path) -> Path:
    return recyclable_directory


@pytest.fixture
def manager(directory: Path) -> Iterator[Manager]:
    with written_twice(directory) as manager:
        yield manager


def test_not_after_a_directory_sync_that_failed(manager: Manager, directory: Path) -> None:
    """The disk may still call the spare the current checkpoint."""
    with failing(directory, "fsync", about="."), pytest.raises(CheckpointWriteFailed) as caught:
        manager.create_checkpoint("a", 3)
    assert caught.value.in_doubt
    assert not recycles(directory, put(manager, 3))
    assert recycles(directory, put(manager, 4))


def test_not_for_any_key_of_a_batch_in_doubt(manager: Manager, directory: Path) -> None:
    for number in range(2):
        manager.create_checkpoint("b", number)
    with failing(directory, "fsync", about="."), pytest.raises(BatchFailed), manager.batch() as batch:
        batch.create_checkpoint("a", 3)
        batch.create_checkpoint("b", 3)
    assert not recycles(directory, put(manager, 4))
    assert not recycles(directory, put(manager, 4, "b"), "b")


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
def test_not_after_an_interrupt_at_any_call(directory: Path, after: bool) -> None:
    for nth in itertools.count(1):
        folder = directory / str(nth)
        with CheckpointManager(folder) as manager:
            for number in range(2):
                manager.create_checkpoint("a", number)
            try:
                with failing(folder, failure=KeyboardInterrupt(), nth=nth, after=after):
                    manager.create_checkpoint("a", 2)
            except KeyboardInterrupt:
                # At the first call it was only looked whether the lock is still ours.
                assert recycles(folder, put(manager, 3)) == (nth == 1)
                assert recycles(folder, put(manager, 4))
            else:
                break
    assert nth == 12


@pytest.mark.parametrize("failure", ["killed", "EIO"])
def test_a_spare_that_was_torn_is_no_damage(directory: Path, failure: str) -> None:
    write = os.write

    def half(descriptor: int, blob: bytes) -> int:
        write(descriptor, blob[: len(blob) // 2])
        raise Killed if failure == "killed" else OSError(errno.EIO, "Input/output error")

    manager = CheckpointManager(directory)
    for value in ("first", "second" * 1000, "third"):
        manager.create_checkpoint("a", value)
    with mock.patch.object(os, "write", half), pytest.raises((Killed, CheckpointWriteFailed)):
        manager.create_checkpoint("a", "torn" * 500)
    if failure == "killed":
        manager.close()
        manager = CheckpointManager(directory)
    with manager:
        assert manager.verify().problems == {}
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == ("third", None)
        assert not recycles(directory, put(manager, "fourth"))
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == ("fourth", "third")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_where_names_cannot_be_exchanged_it_is_found_out_once(manager: Manager, directory: Path, number: int) -> None:
    with failing(directory, "exchange", number, lasting=True) as injector:
        for value, before in ((3, "second"), (4, 3), (5, 4)):
            manager.create_checkpoint("a", value)
            assert (manager.get_checkpoint("a").data, previous_of(manager)) == (value, before)
            assert names(directory) == [".lock", ".previous-a", "a.json"]
    assert [call.name for call in injector.calls].count("exchange") == 1


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_another_failure_of_the_exchange_fails_the_write(manager: Manager, directory: Path, number: int) -> None:
    with failing(directory, "exchange", number), pytest.raises(CheckpointWriteFailed) as caught:
        manager.create_checkpoint("a", 3)
    assert (caught.value.errno, caught.value.in_doubt) == (number, False)
    assert manager.get_checkpoint("a").data == "second"
    assert names(directory) == [".lock", "a.json"], "what was not written is nobody's previous generation"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EACCES, errno.ENOLCK, errno.ENOSYS])
def test_where_there_are_no_leases_it_is_found_out_once(manager: Manager, directory: Path, number: int) -> None:
    with failing(directory, "fcntl", number, lasting=True) as injector:
        for value in range(3, 6):
            assert not recycles(directory, put(manager, value))
    assert [call.name for call in injector.calls].count("fcntl") == 1
    assert (manager.get_checkpoint("a").data, previous_of(manager)) == (5, 4)


def test_a_key_that_another_thread_is_still_writing_waits(manager: Manager, directory: Path) -> None:
    """Its exchange is not durable yet: not before the other has its directory sync."""
    syncing, go_on = threading.Event(), threading.Event()
    order: list[str] = []
    sync_names, stage = Commit._sync_names, Commit._stage

    def slow(self: Commit, *arguments: Any) -> None:
        if not syncing.is_set():
            syncing.set()
            assert not go_on.wait(0.2), "nobody else gets so far"
        sync_names(self, *arguments)
        order.append("synced")

    def staged(self: Commit, *arguments: Any) -> Any:
        order.append("staged")
        return stage(self, *arguments)

    def second() -> None:
        assert syncing.wait(10)
        manager.create_checkpoint("a", 4)

    with mock.patch.object(Commit, "_sync_names", slow), mock.patch.object(Commit, "_stage", staged):
        run_together(put(manager, 3), second)
    assert order == ["staged", "synced", "staged", "synced"]
    assert (manager.get_checkpoint("a").data, previous_of(manager)) == (4, 3)
