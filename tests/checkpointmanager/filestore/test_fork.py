"""A fork copies a manager, never its ownership: the child is refused, the parent goes on."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from checkpointmanager import CheckpointManager, DirectoryLocked, ManagerClosed
from checkpointmanager.testing import Call, watching

from ..processes import LIMIT, Agent, in_forked_child
from ..programs import open_and_close

pytestmark = pytest.mark.usefixtures("kit_standing_by")

Manager = CheckpointManager[int]
R = TypeVar("R")


def _batch(manager: Manager) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("claim", 2)


OPERATIONS: dict[str, Callable[[Manager], object]] = {
    "create": lambda manager: manager.create_checkpoint("claim", 2),
    "create the same": lambda manager: manager.create_checkpoint("claim", 1),
    "get": lambda manager: manager.get_checkpoint("claim").data,
    "previous": lambda manager: manager.previous_checkpoint("claim"),
    "update": lambda manager: manager.update_checkpoint("claim", lambda number: number + 1),
    "remove": lambda manager: manager.remove_checkpoint("claim"),
    "list": lambda manager: manager.list_checkpoints(),
    "load": lambda manager: manager.load(),
    "verify": lambda manager: manager.verify(),
    "recover": lambda manager: manager.recover_checkpoint("claim"),
    "batch": _batch,
    "contains": lambda manager: "claim" in manager,
    "len": len,
    "iterate": list,
}


def served(manager: Manager) -> list[str]:
    """The operations that are not refused."""
    found = []
    for name, operation in OPERATIONS.items():
        try:
            operation(manager)
        except ManagerClosed as refusal:
            if "opened before a fork and belongs to the parent process; open another" in str(refusal):
                continue
        found.append(name)
    return found


@contextmanager
def standing_still(directory: Path, work: Callable[[], R], call: str = "") -> Iterator[Future[R]]:
    """Another thread is in the midst of `work`: before its first such system call."""
    inside, go_on = threading.Event(), threading.Event()

    def wait(met: Call) -> None:
        if call in ("", met.name) and threading.current_thread() is not threading.main_thread():
            inside.set()
            assert go_on.wait(LIMIT)

    with ThreadPoolExecutor(1) as pool, watching(directory, before=wait):
        future = pool.submit(work)
        try:
            assert inside.wait(LIMIT)
            yield future
        finally:
            go_on.set()
        future.result(LIMIT)


@pytest.fixture
def manager(directory: Path) -> Iterator[Manager]:
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("claim", 1)
        yield manager


@pytest.mark.parametrize("options", [{}, {"sharing": True}, {"read_only": True}], ids=["owner", "sharer", "reader"])
def test_a_forked_child_is_refused_every_operation(directory: Path, options: dict[str, Any]) -> None:
    CheckpointManager(directory).close()
    with CheckpointManager[int](directory, **options) as manager:
        assert in_forked_child(lambda: served(manager)) == []


def test_the_parent_goes_on_as_the_owner(manager: Manager, directory: Path) -> None:
    def in_child() -> None:
        manager.close()  # no error: a with block around the fork must be able to end
        CheckpointManager(directory)

    with pytest.raises(DirectoryLocked, match=f"pid {os.getpid()} "):
        in_forked_child(in_child)
    assert manager.update_checkpoint("claim", lambda number: number + 1).generation == 2
    with pytest.raises(DirectoryLocked):
        CheckpointManager(directory)


@pytest.mark.parametrize("leaves", [False, True], ids=["returns", "raises"])
def test_a_child_forked_in_a_change_function_writes_nothing(manager: Manager, leaves: bool) -> None:
    parent = os.getpid()
    children: list[int] = []

    def change(number: int) -> int:
        children.append(os.fork())
        if leaves and not children[0]:
            raise RuntimeError("leave")
        return number + 1

    try:
        with suppress(RuntimeError):
            manager.update_checkpoint("claim", change)
        if os.getpid() != parent:
            manager.create_checkpoint("claim", 3)
    except ManagerClosed:
        os._exit(42)
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 42
    assert (manager.get_checkpoint("claim").data, manager.get_checkpoint("claim").generation) == (2, 2)


def test_a_living_child_does_not_keep_the_lock_of_its_dead_parent(directory: Path) -> None:
    with Agent() as agent:
        agent.ask("open", directory)
        agent.ask("create", "claim", 1)
        child = agent.ask("fork")
        try:
            with pytest.raises(DirectoryLocked):
                CheckpointManager(directory)
            agent.kill()
            os.kill(child, 0)  # raises if the child is dead
            with CheckpointManager(directory, lock_timeout=0) as manager:
                assert manager.create_checkpoint("claim", 2).generation == 2
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_child_forked_while_a_sharer_writes_does_not_keep_the_lock(directory: Path) -> None:
    with CheckpointManager(directory, sharing=True) as manager, Agent() as agent:
        manager.create_checkpoint("claim", 1)

        def change(number: int) -> int:
            children.append(os.fork())
            if not children[0]:
                signal.alarm(60)
                signal.pause()
                os._exit(0)
            return number + 1

        children: list[int] = []
        manager.update_checkpoint("claim", change)
        try:
            agent.ask("open", directory, lock_timeout=LIMIT / 2)
        finally:
            os.kill(children[0], signal.SIGKILL)
            os.waitpid(children[0], 0)


@pytest.mark.parametrize("call", ["fdatasync", "rename"])
def test_a_fork_amid_another_threads_write_does_not_hang_the_child(
    manager: Manager, directory: Path, tmp_path: Path, call: str
) -> None:
    def in_child() -> list[str]:
        with CheckpointManager[int](tmp_path / "other") as other:
            other.create_checkpoint("claim", 1)
        return served(manager)

    with standing_still(directory, lambda: manager.create_checkpoint("claim", 7), call) as write:
        assert in_forked_child(in_child) == []
    assert write.result().generation == 2
    assert manager.get_checkpoint("claim").data == 7


def test_a_fork_while_another_thread_closes_does_not_hang_the_child(manager: Manager, directory: Path) -> None:
    def in_child() -> list[str]:
        manager.close()
        return served(manager)

    with standing_still(directory, manager.close):
        assert in_forked_child(in_child) == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_are_refused_the_directory_while_the_parent_has_it(
    manager: Manager, directory: Path, method: str
) -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        with pytest.raises(DirectoryLocked) as refusal:
            pool.submit(open_and_close, directory).result(LIMIT)
        assert refusal.value.owner is not None  # the whole error crosses the process boundary
        assert refusal.value.owner.pid == os.getpid()
        manager.close()
        assert pool.submit(open_and_close, directory).result(LIMIT) != os.getpid()
    gc.collect()  # the processes of the pool, while `os` is the real one


def test_a_manager_cannot_be_sent_to_a_spawned_worker(manager: Manager) -> None:
    with pytest.raises(TypeError, match="pickle"):
        multiprocessing.get_context("spawn").Process(target=print, args=(manager,)).start()
    assert manager.create_checkpoint("claim", 2).generation == 2
