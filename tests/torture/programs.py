"""Writers that run until they are killed; each reports every change before it begins and when it is done."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointManager

from ..checkpointmanager.programs import KEYS

THREADS = 4
BATCH = 5
COUNTER = "counter"


def write_in_threads(directory: Path, say: int, *, seed: int, first: int) -> None:
    """Like programs.write_without_end, but in threads, each with its own keys."""
    numbers = itertools.count(first)

    def write(thread: int) -> None:
        dice = random.Random(f"{seed}-{thread}")
        for number in numbers:
            key = dice.choice(KEYS[thread::THREADS])
            action = dice.choice(("put", "put", "put", "update", "remove"))
            changes = f"{'remove' if action == 'remove' else 'put'}:{key}"
            os.write(say, f"begin {number} {changes}\n".encode())
            _change(manager, action, key, {"number": number, "filler": "x" * dice.randrange(2000)})
            os.write(say, f"done {number} {changes}\n".encode())

    with CheckpointManager(directory) as manager:
        _in_threads(write, THREADS)


def batch_without_end(directory: Path, say: int, *, seed: int, first: int) -> None:
    """One batch after another, each over most of the keys: writes and removals together."""
    dice = random.Random(seed)
    with CheckpointManager(directory) as manager:
        for number in itertools.count(first):
            actions = {key: dice.choice(("put", "put", "remove")) for key in dice.sample(KEYS, BATCH)}
            changes = " ".join(f"{action}:{key}" for key, action in actions.items())
            os.write(say, f"begin {number} {changes}\n".encode())
            with manager.batch() as batch:
                for key, action in actions.items():
                    if action == "put":
                        batch.create_checkpoint(key, {"number": number, "filler": "x" * dice.randrange(2000)})
                    else:
                        batch.remove_checkpoint(key)
            os.write(say, f"done {number} {changes}\n".encode())


def count_without_end(directory: Path, say: int) -> None:
    """Add one to a counter that other processes also increment."""
    with CheckpointManager(directory, sharing=True) as manager:
        while True:
            os.write(say, b"begin\n")
            manager.update_checkpoint(COUNTER, lambda number: number + 1)
            os.write(say, b"done\n")


def _change(manager: CheckpointManager[Any], action: str, key: str, data: dict[str, Any]) -> None:
    if action == "remove":
        manager.remove_checkpoint(key)
    elif action == "update" and key in manager:
        manager.update_checkpoint(key, lambda _: data)
    else:
        manager.create_checkpoint(key, data)


def _in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
