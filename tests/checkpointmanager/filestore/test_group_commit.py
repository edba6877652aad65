"""Threads that wait for the disk share one sync and one outcome, and nobody waits for a thread that waits for him."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointWriteFailed
from checkpointmanager.testing import Call, failing, watching

from ..leases import LEASES
from ..processes import LIMIT, in_forked_child, open_files, run_together, until
from ..scenarios import known
from ..signals import Interrupted

pytestmark = pytest.mark.usefixtures("kit_standing_by")

Manager = CheckpointManager[Any]
FOLLOWERS = [f"follower-{number}" for number in range(6)]
LARGE = "x" * (5 << 20)  # more than the largest journal holds


@pytest.fixture
def manager(real_directory: Path) -> Iterator[Manager]:
    """With a journal, so that the next change makes none."""
    with CheckpointManager[Any](real_directory) as manager:
        manager.create_checkpoint("first", 0)
        yield manager


def waiting(manager: Manager) -> int:
    """How many calls wait in the group that has not been written yet."""
    store: Any = manager._store
    group = store._journal._groups._open
    return len(group.members) if group else 0


class Disk:
    """Counts the syncs of the journal; the first one takes until `go_on`."""

    def __init__(self) -> None:
        self.syncs = 0
        self.began, self.go_on = threading.Event(), threading.Event()
        self.second: Callable[[], object] = int  # called in place of nothing before the second sync

    def __call__(self, call: Call) -> None:
        if call.name != "fdatasync":
            return
        self.syncs += 1
        if self.syncs == 1:
            self.began.set()
            assert self.go_on.wait(LIMIT)
        elif self.syncs == 2:
            self.second()


@contextmanager
def group_of(manager: Manager, directory: Path, disk: Disk, value: object = 1) -> Iterator[list[Future[Any]]]:
    """While one thread syncs, FOLLOWERS join one group. They are written when the block ends."""
    with ThreadPoolExecutor(len(FOLLOWERS) + 1) as pool, watching(directory, before=disk):
        first = pool.submit(manager.create_checkpoint, "first", 1)
        assert disk.began.wait(LIMIT)
        futures = [pool.submit(manager.create_checkpoint, key, value) for key in FOLLOWERS]
        try:
            until(lambda: waiting(manager) == len(FOLLOWERS))
            yield futures
        finally:
            disk.go_on.set()
        assert first.result(LIMIT).generation == 2
        for future in futures:
            future.exception(LIMIT)


def test_threads_that_wait_share_one_sync(manager: Manager, real_directory: Path) -> None:
    disk = Disk()
    with group_of(manager, real_directory, disk) as futures:
        pass
    assert [future.result().generation for future in futures] == [1] * len(FOLLOWERS)
    assert disk.syncs == 2
    assert sorted(manager.list_checkpoints()) == sorted(["first", *FOLLOWERS])


def _fail() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_failed_sync_puts_its_whole_group_in_doubt_and_nobody_syncs_again(
    manager: Manager, real_directory: Path
) -> None:
    disk = Disk()
    disk.second = _fail
    with group_of(manager, real_directory, disk) as futures:
        pass
    errors = [future.exception() for future in futures]
    assert all(isinstance(error, CheckpointWriteFailed) and error.in_doubt for error in errors)
    assert len({id(error.__cause__) for error in errors if error}) == 1, "one outcome for all"
    assert disk.syncs == 2
    assert manager.list_checkpoints() == ["first"], "the owner serves what is certain"


def test_a_record_larger_than_any_journal_is_committed_with_the_next_journal(
    manager: Manager, real_directory: Path
) -> None:
    with watching(real_directory) as calls:
        manager.create_checkpoint("large", LARGE)
    assert "fdatasync" not in [call.name for call in calls]
    assert manager.create_checkpoint("small", 1).generation == 1
    assert manager.get_checkpoint("large").data == LARGE


@pytest.mark.parametrize("nth", [1, 2])
def test_a_large_record_is_in_doubt_only_if_its_journal_may_be_in_place(
    manager: Manager, real_directory: Path, nth: int
) -> None:
    """The first sync of the directory ends the settle; the second one puts the new journal in place."""
    with failing(real_directory, "fsync", about=".", nth=nth), pytest.raises(CheckpointWriteFailed) as caught:
        manager.create_checkpoint("large", LARGE)
    assert caught.value.in_doubt is (nth == 2)
    assert "large" not in manager
    manager.create_checkpoint("large", LARGE)
    assert manager.get_checkpoint("large").data == LARGE


@pytest.mark.usefixtures("no_waiting_for_the_disk")
def test_threads_that_settle_and_threads_that_write_never_wait_for_each_other(manager: Manager) -> None:
    """Each of 4 threads changes 300 keys, so that settles come between writes, batches, reads and removals."""

    def work(thread: int) -> None:
        for number in range(300):
            key = f"{thread}-{number}"
            manager.create_checkpoint(key, "x" * 2000)
            if number % 7 == 0:
                with manager.batch() as batch:
                    batch.create_checkpoint(key, number)
                    batch.create_checkpoint(f"{thread}-shared", number)
            if number % 5 == 0:
                manager.remove_checkpoint(key)

    run_together(*(lambda thread=thread: work(thread) for thread in range(4)))
    assert len(manager) == 1 + 4 * (1 + 240)


def errors_of_followers(
    manager: Manager, directory: Path, disk: Disk, when_all_wait: Callable[[], object], **hooks: Any
) -> dict[str, BaseException | None]:
    """The main thread leads a group that waits for another thread's sync, and is interrupted."""
    with ThreadPoolExecutor(len(FOLLOWERS) + 2) as pool, watching(directory, **hooks):
        first = pool.submit(manager.create_checkpoint, "first", 1)
        assert disk.began.wait(LIMIT)
        futures: list[Future[Any]] = []

        def follow() -> None:
            until(lambda: waiting(manager) == 1)
            futures.extend(pool.submit(manager.create_checkpoint, key, 1) for key in FOLLOWERS)
            until(lambda: waiting(manager) == 1 + len(FOLLOWERS))
            when_all_wait()

        follower = pool.submit(follow)
        with pytest.raises(Interrupted):
            manager.create_checkpoint("mine", 1)
        follower.result(LIMIT)
        disk.go_on.set()
        first.result(LIMIT)
        return {key: future.exception(LIMIT) for key, future in zip(FOLLOWERS, futures, strict=True)}


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("nth", range(1, 4), ids=["position", "append", "sync"])
def test_followers_of_an_interrupted_leader_are_served_or_told_the_doubt(
    manager: Manager, real_directory: Path, nth: int, after: bool
) -> None:
    """The leader is interrupted while it writes the group."""
    disk, calls = Disk(), itertools.count(1)
    me = threading.current_thread()

    def interrupt(call: Call) -> None:
        disk(call) if not after else None
        ours = threading.current_thread() is me and call.name in ("lseek", "write", "fdatasync") and disk.go_on.is_set()
        if ours and next(calls) == nth:
            raise Interrupted

    hooks: dict[str, Any] = {"after": interrupt, "before": disk} if after else {"before": interrupt}
    errors = errors_of_followers(manager, real_directory, disk, disk.go_on.set, **hooks)
    check_served(manager, real_directory, errors)


def test_a_leader_interrupted_while_it_waits_for_its_turn_leaves_the_group_to_the_others(
    manager: Manager, real_directory: Path
) -> None:
    disk = Disk()

    def handler(_: int, __: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handler)
    main = threading.main_thread().ident or 0
    try:
        send = partial(signal.pthread_kill, main, signal.SIGUSR1)
        errors = errors_of_followers(manager, real_directory, disk, send, before=disk)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "mine" not in manager
    assert errors == dict.fromkeys(FOLLOWERS)
    check_served(manager, real_directory, errors)


def check_served(manager: Manager, directory: Path, errors: dict[str, BaseException | None]) -> None:
    for key, error in errors.items():
        assert error is None or (isinstance(error, CheckpointWriteFailed) and error.in_doubt), f"{key}: {error!r}"
        assert (key in manager) == (error is None)
    for key in ("mine", *errors):
        manager.create_checkpoint(key, 2)
    manager.close()
    with CheckpointManager[Any](directory) as again:
        assert {key: again.get_checkpoint(key).data for key in ("mine", *errors)} == dict.fromkeys(("mine", *errors), 2)


def test_a_fork_amid_a_group_leaves_the_child_nothing_and_the_parent_everything(
    manager: Manager, real_directory: Path
) -> None:
    def in_child() -> list[str]:
        manager.close()  # settles nothing
        return [name for name in open_files() if name.startswith(f"{real_directory}/")]

    disk = Disk()
    with group_of(manager, real_directory, disk) as futures:
        assert in_forked_child(in_child) == [], "the child keeps descriptors of its parent"
        assert (real_directory / ".journal").exists()
    assert [future.result().generation for future in futures] == [1] * len(FOLLOWERS)
    assert disk.syncs == 2


def test_a_child_that_ends_does_not_end_the_journal_of_its_parent(real_directory: Path) -> None:
    with known(real_directory) as manager:
        child = os.fork()
        if not child:
            del manager
            os._exit(0)
        os.waitpid(child, 0)
        assert (real_directory / ".journal").exists()
        with CheckpointManager(real_directory, LEASES, read_only=True) as reader, watching(real_directory) as calls:
            reader.get_checkpoint("a")
        assert ("read", ".journal") not in [(call.name, call.about) for call in calls], "its lock is still held"
