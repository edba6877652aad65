"""What the other processes in these tests run: an agent that obeys orders, and work that is killed."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointError, CheckpointManager
from checkpointmanager.testing import Call, watching

COMMAND = "node-agent"  # the name of the lock holder in messages


def serve(orders: Connection) -> None:
    """Carry out orders, each a method of RemoteAgent and its arguments, until there are no more."""
    sys.argv = [COMMAND]
    agent = RemoteAgent()
    with suppress(EOFError):
        while True:
            verb, arguments, options = orders.recv()
            try:
                answer = getattr(agent, verb)(*arguments, **options)
            except (CheckpointError, ValueError) as error:
                answer = error
            orders.send(answer)


class RemoteAgent:
    """An agent with one manager of any JSON value."""

    def open(self, directory: Path, **options: Any) -> int:
        self.directory = directory
        self.manager: CheckpointManager[Any] = CheckpointManager(directory, **options)
        return os.getpid()

    def close(self) -> None:
        self.manager.close()

    def create(self, key: str, data: object) -> int:
        return self.manager.create_checkpoint(key, data).generation

    def get(self, key: str) -> Any:
        return self.manager.get_checkpoint(key).data

    def count(self, key: str, times: int) -> list[int]:
        """Add one that many times; returns the generations that this made."""
        return [self.manager.update_checkpoint(key, lambda number: number + 1).generation for _ in range(times)]

    def count_in_threads(self, key: str, threads: int, times: int) -> list[int]:
        with ThreadPoolExecutor(threads) as pool:
            counted = [pool.submit(self.count, key, times) for _ in range(threads)]
            return [generation for future in counted for generation in future.result()]

    def stop_before(self, call: str, key: str, data: object) -> int:
        """Write, but stop (as by SIGSTOP) before the first such system call of the write."""
        stopped = threading.Event()

        def stop(met: Call) -> None:
            if met.name == call and not stopped.is_set():
                stopped.set()
                os.kill(os.getpid(), signal.SIGSTOP)

        with watching(self.directory, before=stop):
            return self.create(key, data)

    def fork(self) -> int:
        """Fork a child that lives on with all that it inherited and does nothing; returns when it runs."""
        hearing, saying = os.pipe()
        child = os.fork()
        if not child:
            os.write(saying, b"alive")
            signal.alarm(60)
            signal.pause()
            os._exit(0)
        os.read(hearing, 5)
        return child


def die_before_call(number: int, folder: Path, work: Callable[[], object]) -> None:
    """Do the work, but be killed just before its n-th system call on the contents of the folder.

    Calls that only read are not counted: to die before one is to die before the next change.
    """
    calls = itertools.count(1)

    def die(call: Call) -> None:
        if call.name not in ("read", "fstat", "lseek", "fcntl") and next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    with watching(folder, before=die):
        work()


def open_and_close(directory: Path) -> int:
    """For pools: own the directory for a moment."""
    with CheckpointManager(directory):
        return os.getpid()
