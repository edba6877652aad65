"""Batches and awaited calls after the main thread has ended, and where no more threads can be started."""

from __future__ import annotations

import _thread
import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, FileStore
from checkpointmanager.aio import KeyedThreads, KeyedThreadsClosed
from checkpointmanager.testing import Call, watching

from ..processes import LIMIT

pytestmark = pytest.mark.usefixtures("kit_standing_by")

BATCH = """
import asyncio, atexit, sys, threading
from checkpointmanager import CheckpointManager
from checkpointmanager.aio import AsyncCheckpointManager

def batch():
    with CheckpointManager(sys.argv[1]) as manager:
        with manager.batch() as batch:
            for number in range(10):
                batch.create_checkpoint(f"claim-{number}", number)

async def awaited(outlives):
    async with AsyncCheckpointManager(sys.argv[1]) as manager:
        await manager.create_checkpoint("claim-0", 0)
        if outlives:
            threading.main_thread().join()
        for number in range(1, 5):
            await manager.create_checkpoint(f"claim-{number}", number)
        for number in range(5, 10):
            await manager.create_checkpoint(f"claim-{number}", number)

def outlive():
    threading.main_thread().join()
    batch()
"""
ENDS = {
    "a batch in a thread that outlives main": "threading.Thread(target=outlive).start()",
    "a batch in an atexit handler": "atexit.register(batch)",
    "awaited in a thread that outlives main": "threading.Thread(target=asyncio.run, args=[awaited(True)]).start()",
    "awaited in an atexit handler": "atexit.register(lambda: asyncio.run(awaited(False)))",
}


@pytest.mark.parametrize("end", ENDS)
def test_what_is_written_after_the_main_thread_has_ended_is_written(tmp_path: Path, end: str) -> None:
    program = [sys.executable, "-c", BATCH + ENDS[end], str(tmp_path / "claims")]

    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
    with CheckpointManager(tmp_path / "claims") as manager:
        assert {key: found.data for key, found in manager.load().checkpoints.items()} == {
            f"claim-{number}": number for number in range(10)
        }


@pytest.mark.parametrize("threads", range(4))
def test_a_batch_is_written_where_few_threads_or_none_can_be_started(tmp_path: Path, threads: int) -> None:
    left = threads
    start = _thread.start_new_thread

    def start_if_there_are_some(*arguments: Any) -> int:
        nonlocal left
        if not left:
            raise RuntimeError("can't start new thread")
        left -= 1
        return start(*arguments)

    with CheckpointManager(tmp_path / "claims") as manager:
        with mock.patch.object(_thread, "start_new_thread", start_if_there_are_some), manager.batch() as batch:
            for number in range(20):
                batch.create_checkpoint(f"claim-{number}", number)
        assert manager.verify().intact == 20


@pytest.mark.parametrize("threads", range(3))
def test_each_awaited_call_is_made_once_where_few_threads_or_none_can_be_started(threads: int) -> None:
    """A pool that cannot start a thread has queued the call already: one of its threads may still run it."""
    calls: list[int] = []
    left = threads
    start = threading.Thread.start

    def start_if_there_are_some(thread: threading.Thread) -> None:
        nonlocal left
        if not left:
            raise RuntimeError("can't start new thread")
        left -= 1
        start(thread)

    async def call_all() -> None:
        keyed = KeyedThreads(8)
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(keyed.call(lambda number=number: calls.append(number)))  # type: ignore[misc]
        await keyed.close()
        with pytest.raises(KeyedThreadsClosed):
            await keyed.call(lambda: None)

    with mock.patch.object(threading.Thread, "start", start_if_there_are_some):
        asyncio.run(call_all())
    assert sorted(calls) == list(range(50))


def test_a_batch_that_is_interrupted_ends_when_the_calls_of_its_helpers_have(directory: Path) -> None:
    started, ended = threading.Event(), threading.Event()

    def sync(call: Call) -> None:
        if call.name != "fsync" or not call.about.startswith(".tmp-"):
            return
        if threading.current_thread() is threading.main_thread():
            assert started.wait(LIMIT)
            raise KeyboardInterrupt
        started.set()
        ended.wait(0.2)
        ended.set()

    with CheckpointManager(directory, sharing=True) as manager:
        with watching(directory, before=sync), pytest.raises(KeyboardInterrupt), manager.batch() as batch:
            for number in range(8):
                batch.create_checkpoint(f"claim-{number}", number)
        assert ended.is_set()
        assert manager.list_checkpoints() == []


def test_what_a_helper_raises_reaches_the_caller(directory: Path) -> None:
    raised = threading.Event()

    def sync(call: Call) -> None:
        if call.name != "fsync" or not call.about.startswith(".tmp-"):
            return
        if threading.current_thread() is threading.main_thread():
            raised.wait(LIMIT)
        else:
            raised.set()
            raise ZeroDivisionError

    manager: CheckpointManager[int] = CheckpointManager(directory, sharing=True)
    with watching(directory, before=sync), pytest.raises(ZeroDivisionError), manager, manager.batch() as batch:
        for number in range(8):
            batch.create_checkpoint(f"claim-{number}", number)


def test_a_helper_that_ends_late_refers_to_nothing_of_the_manager(directory: Path) -> None:
    """Otherwise a finalizer could run in that thread later, and close a descriptor that is no longer its own."""
    start, may_end = _thread.start_new_thread, threading.Event()

    def ending_late(helper: Callable[..., None], arguments: tuple[object, ...]) -> int:
        def run() -> None:
            helper(*arguments)
            may_end.wait(LIMIT)

        return start(run, ())

    def write() -> weakref.ref[FileStore]:
        store = FileStore(directory, sharing=True)
        with CheckpointManager[int](store) as manager, manager.batch() as batch:
            for number in range(20):
                batch.create_checkpoint(f"claim-{number}", number)
        return weakref.ref(store)

    with mock.patch.object(_thread, "start_new_thread", ending_late):
        store = write()
    gc.collect()
    try:
        assert store() is None
    finally:
        may_end.set()
