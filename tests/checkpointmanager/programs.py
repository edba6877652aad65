"""What the other processes in these tests run: an agent that obeys orders, and a writer that never ends."""

from __future__ import annotations

import itertools
import os
import random
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

KEYS = [f"key-{number}" for number in range(8)]
MANY_KEYS = [f"key-{number}" for number in range(24)]


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


def write_without_end(directory: Path, say: int, *, seed: int, first: int, **options: Any) -> None:
    """Write, remove and batch random keys; report each change before it begins and when it is acknowledged."""
    dice = random.Random(seed)
    with CheckpointManager(directory, **options) as manager:
        for number in itertools.count(first):
            keys = dice.sample(KEYS, 3 if dice.random() < 0.2 else 1)
            actions = {key: "remove" if dice.random() < 0.2 else "put" for key in keys}
            data = {"number": number, "filler": "x" * dice.randrange(4000)}
            changes = " ".join(f"{action}:{key}" for key, action in actions.items())
            os.write(say, f"begin {number} {changes}\n".encode())
            if len(keys) > 1:
                with manager.batch() as batch:
                    for key, action in actions.items():
                        batch.create_checkpoint(key, data) if action == "put" else batch.remove_checkpoint(key)
            elif actions[keys[0]] == "put":
                manager.create_checkpoint(keys[0], data)
            else:
                manager.remove_checkpoint(keys[0])
            os.write(say, f"done {number} {changes}\n".encode())


def change_in_threads(directory: Path, say: int, *, threads: int, first: int) -> None:
    """Each thread creates, updates and removes its own keys, some of them together, and reports as above."""
    numbers = itertools.count(first)

    def change(keys: list[str]) -> None:
        dice = random.Random(f"{first}{keys}")
        for number in numbers:
            together = dice.random() < 0.1
            actions = {key: "remove" if dice.random() < 0.1 else "put" for key in dice.sample(keys, 1 + together)}
            filler = "x" * (dice.randrange(300) if dice.random() < 0.7 else dice.randrange(12_000))
            data = {"number": number, "filler": filler}
            said = " ".join(f"{action}:{key}" for key, action in actions.items())
            os.write(say, f"{'begin-together' if together else 'begin'} {number} {said}\n".encode())
            if together:
                change_together(actions, data)
            else:
                change_one(*actions.popitem(), data, update=dice.random() < 0.5)
            os.write(say, f"done {number} {said}\n".encode())

    def change_one(key: str, action: str, data: object, *, update: bool) -> None:
        if action == "remove":
            manager.remove_checkpoint(key)
        elif update:
            manager.update_checkpoint(key, lambda _: data, default=None)
        else:
            manager.create_checkpoint(key, data)

    def change_together(actions: dict[str, str], data: object) -> None:
        with manager.transaction() as transaction:
            for key, action in actions.items():
                if action == "remove":
                    transaction.remove_checkpoint(key)
                else:
                    transaction.create_checkpoint(key, data)

    with CheckpointManager[Any](directory) as manager, ThreadPoolExecutor(threads) as pool:
        list(pool.map(change, [MANY_KEYS[thread::threads] for thread in range(threads)]))


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
