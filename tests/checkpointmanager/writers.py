"""A writer that never ends, and what it reported, compared with what is found after its death."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointManager

from .processes import LIMIT, Child

KEYS = [f"key-{number}" for number in range(24)]
HOW = ("create", "update", "remove", "batch", "transaction")
HOW_OFTEN = (20, 25, 10, 15, 30)  # percent

Number = int | None  # of the change that wrote the checkpoint; None: no checkpoint


def write_without_end(directory: Path, say: int, *, first: int, threads: int = 1, **options: Any) -> None:
    """Each thread changes its own keys, some of them together, and reports each change before it begins and when it is
    acknowledged."""
    numbers = itertools.count(first)

    def write(keys: list[str]) -> None:
        dice = random.Random(f"{first}{keys}")
        for number in numbers:
            (how,) = dice.choices(HOW, HOW_OFTEN)
            changed = dice.sample(keys, {"batch": 3, "transaction": 2}.get(how, 1))
            removed = {key for key in changed if how == "remove" or (len(changed) > 1 and dice.random() < 0.2)}
            filler = "x" * (dice.randrange(300) if dice.random() < 0.7 else dice.randrange(12_000))
            said = " ".join(f"{'remove' if key in removed else 'put'}:{key}" for key in changed)
            os.write(say, f"{'begin-together' if how == 'transaction' else 'begin'} {number} {said}\n".encode())
            _change(manager, how, changed, removed, {"number": number, "filler": filler})
            os.write(say, f"done {number} {said}\n".encode())

    keys = KEYS[: max(8, 3 * threads)]
    with CheckpointManager[Any](directory, **options) as manager, ThreadPoolExecutor(threads) as pool:
        list(pool.map(write, [keys[thread::threads] for thread in range(threads)]))


def _change(manager: CheckpointManager[Any], how: str, changed: list[str], removed: set[str], data: object) -> None:
    if how == "update":
        manager.update_checkpoint(changed[0], lambda _: data, default=None)
    elif how in ("create", "remove"):
        _fill(manager, changed, removed, data)
    else:
        with manager.batch() if how == "batch" else manager.transaction() as several:
            _fill(several, changed, removed, data)


def _fill(target: Any, changed: list[str], removed: set[str], data: object) -> None:
    for key in changed:
        if key in removed:
            target.remove_checkpoint(key)
        else:
            target.create_checkpoint(key, data)


class Reports:
    """What the writers of one directory reported, one after another, and so what may be found there."""

    def __init__(self) -> None:
        self._allowed: dict[str, list[Number]] = {key: [None] for key in KEYS}
        self._together: dict[str, dict[str, Number]] = {}  # the last transaction of each key, if it may be unfinished
        self._torn = b""
        self.acknowledged = 0
        self.last = 0

    def read(self, output: bytes, *, acknowledgements: bool = True) -> None:
        """A change that began may have happened; an acknowledged one has, and replaced all before it."""
        *lines, self._torn = (self._torn + output).split(b"\n")
        for line in lines:
            event, word, *changes = line.decode().split()
            number = int(word)
            self.last = max(self.last, number)  # several threads do not report in order
            self.acknowledged += acknowledgements and event == "done"
            outcomes = {key: number if action == "put" else None for action, key in (c.split(":") for c in changes)}
            for key, outcome in outcomes.items():
                if event.startswith("begin"):
                    self._allowed[key].append(outcome)
                    self._together[key] = outcomes if event == "begin-together" else {}
                elif acknowledgements:
                    self._allowed[key] = [outcome]

    def follow(self, writer: Child, *, acknowledgements: int, seconds: float) -> None:
        """Read until that many more changes are acknowledged, and then for some time."""
        wanted = self.acknowledged + acknowledgements
        while self.acknowledged < wanted:
            output = writer.read(LIMIT)
            assert output, "the writer has ended, or hangs"
            self.read(output)
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            self.read(writer.read(remaining))

    def losses(self, manager: CheckpointManager[Any]) -> list[str]:
        """What contradicts the reports; afterwards they start from what was found."""
        loaded = manager.load()
        found = {key: checkpoint.data["number"] for key, checkpoint in loaded.checkpoints.items()}
        problems = [f"{key}: {problem}" for key, problem in loaded.problems.items()]
        problems += [
            f"{key}: found {found.get(key)}, may be one of {allowed}"
            for key, allowed in self._allowed.items()
            if key not in loaded.problems and found.get(key) not in allowed
        ]
        problems += [
            f"half of a transaction: {outcomes}, found { ({key: found.get(key) for key in outcomes}) }"
            for outcomes in self._unfinished()
            if len({found.get(key) == outcome for key, outcome in outcomes.items()}) > 1
        ]
        self._start_from(found)
        return problems

    def _unfinished(self) -> list[dict[str, Number]]:
        """The last transactions, each with those of its keys that would show whether it happened."""
        last = {id(outcomes): outcomes for outcomes in self._together.values() if outcomes}.values()
        whole = [outcomes for outcomes in last if all(self._together[key] is outcomes for key in outcomes)]
        return [{key: each[key] for key in each if each[key] not in self._allowed[key][:-1]} for each in whole]

    def _start_from(self, found: Mapping[str, Number]) -> None:
        self._allowed = {key: [found.get(key)] for key in KEYS}
        self._together = {}
        self._torn = b""
