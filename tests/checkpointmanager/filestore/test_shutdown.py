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

from ..contents import names
from ..processes import LIMIT

pytestmark = pytest.mark.usefixtures("kit_standing_by")

PROGRAM = """
import asyncio, atexit, sys, threading
from checkpointmanager import CheckpointCache, CheckpointManager, Schema
from checkpointmanager.aio import AsyncCheckpointCache

def batch(name):
    with CheckpointManager(sys.argv[1] + name) as manager:
        with manager.batch() as batch:
            for number in range(10):
                batch.create_checkpoint(f"claim-{number}", number)

async def awaited(name, *, outlives=False):
    async with await AsyncCheckpointCache.open(lambda: CheckpointCache(sys.argv[1] + name, Schema("JSON"))) as cache:
        await cache.put("claim-0", 0)
        if outlives:
            threading.main_thread().join()
        for number in range(1, 10):
            await cache.put(f"claim-{number}", number)

def outlive():
    threading.main_thread().join()
    batch("a batch in a thread")

threading.Thread(target=outlive).start()
threading.Thread(target=asyncio.run, args=[awaited("awaited in a thread", outlives=True)]).start()
atexit.register(batch, "a batch in an atexit handler")
atexit.register(lambda: asyncio.run(awaited("awaited in an atexit handler")))
"""


def test_what_is_written_after_the_main_thread_has_ended_is_written(tmp_path: Path) -> None:
    program = [sys.executable, "-c", PROGRAM, f"{tmp_path}/"]

    ended = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(names(tmp_path)) == 4
    for name in names(tmp_path):
        with CheckpointManager[int](tmp_path / name) as manager:
            written = {key: found.data for key, found in manager.load().checkpoints.items()}
        assert written == {f"claim-{number}": number for number in range(10)}, name


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
