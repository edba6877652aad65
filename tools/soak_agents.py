"""The two agents of the soak test, each a separate process; soak_run.py starts and judges them.

    python tools/soak_agents.py steady|mortal DIRECTORY THREADS KEYS FIRST

The steady one runs in rounds as long as the test. At the end of each round all its threads have ended, and it
reports what it uses, which must not grow from round to round. The mortal one reports each change before it begins
and when it is done, until it is killed.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointManager
from draState import (
    Allocation,
    ClaimInfoCache,
    ClaimRef,
    Device,
    DRAManager,
    Pod,
    Prepared,
    ResourceClaim,
)

ROUND_SECONDS = 5.0
LIVES = 4  # rounds with one manager; then it is closed and opened again
BATCH = 20
GPU = "gpu.example.com"

Manager = CheckpointManager[Any]


def held_by(process: int | str = "self") -> dict[str, int]:
    """Memory in KiB and open descriptors of a process."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return {
        "rss": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "descriptors": len(os.listdir(f"/proc/{process}/fd")),
    }


def contents(directory: Path) -> dict[str, int]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "temps": sum(path.name.startswith(".tmp-") for path in files),
    }


class Worker:
    """One thread of the steady agent: changes and reads its own keys, and knows what they must hold."""

    def __init__(self, number: int, keys: list[str], seed: int) -> None:
        self._keys = keys
        self._dice = random.Random(f"{seed}-{number}")
        self.expected: dict[str, Any] = {}
        self.operations = 0

    def work(self, manager: Manager, until: float) -> None:
        while time.monotonic() < until:
            self._step(manager)
            self.operations += 1

    def _step(self, manager: Manager) -> None:
        key, value = self._dice.choice(self._keys), self._value()
        turn = self._dice.random()
        if turn < 0.35:
            manager.create_checkpoint(key, value)
            self.expected[key] = value
        elif turn < 0.55 and key in self.expected:
            manager.update_checkpoint(key, lambda old: {**old, "number": value["number"]})
            self.expected[key] = {**self.expected[key], "number": value["number"]}
        elif turn < 0.65:
            manager.remove_checkpoint(key)
            self.expected.pop(key, None)
        elif turn < 0.70:
            self._batch(manager)
        elif turn < 0.71 and key in self.expected:
            self._damage_and_recover(manager, key)
        elif turn < 0.72:
            manager.load()
        else:
            found = manager.get_checkpoint(key).data if key in manager else None
            assert found == self.expected.get(key), f"{key} is not what was written"

    def _batch(self, manager: Manager) -> None:
        values = {key: self._value() for key in self._dice.sample(self._keys, min(BATCH, len(self._keys)))}
        with manager.batch() as batch:
            for key, value in values.items():
                batch.create_checkpoint(key, value)
        self.expected.update(values)

    def _damage_and_recover(self, manager: Manager, key: str) -> None:
        path = Path(manager._store.path) / f"{key}.json"
        blob = bytearray(path.read_bytes())
        blob[self._dice.randrange(len(blob))] ^= 1 << self._dice.randrange(8)
        path.write_bytes(blob)
        manager.recover_checkpoint(key)

    def _value(self) -> dict[str, Any]:
        return {"number": self._dice.randrange(1 << 40), "filler": "x" * self._dice.randrange(3000)}


class Driver:
    """Prepares every claim."""

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Prepared]:
        return {claim.uid: Prepared((Device("pool", claim.uid),)) for claim in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        return {claim.uid: "" for claim in claims}


def pods_come_and_go(directory: Path, number: int, until: float) -> int:
    """Prepare and unprepare claims in their own directory; none is left at the end."""
    cache = ClaimInfoCache(directory)
    manager = DRAManager(cache, {GPU: Driver()})
    turns = 0
    while time.monotonic() < until:
        for turn in range(10):
            claim = ResourceClaim(
                f"claim-{number}-{turn}", f"claim-{turn}", "default", {GPU: Allocation()}, frozenset({f"pod-{turn}"})
            )
            pod = Pod(f"pod-{turn}", f"pod-{turn}", "default", {"gpu": claim}, {})
            manager.prepare_resources(pod)
        for turn in range(10):
            manager.unprepare_resources(f"pod-{turn}")
        turns += 20
    assert len(cache) == 0
    cache.close()
    return turns


def run_steady(directory: Path, threads: int, keys: int) -> None:
    """Print one line of JSON after each round, when no thread runs; end when standard input ends."""
    workers = [Worker(n, [f"key-{k}" for k in range(n, keys, threads)], seed=1) for n in range(threads)]
    stopping = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    claims = 0
    while not stopping.is_set():
        with CheckpointManager(directory / "state") as manager:
            for _ in range(LIVES):
                until = time.monotonic() + ROUND_SECONDS
                failures = _in_threads([partial(worker.work, manager, until) for worker in workers])
                claims += pods_come_and_go(directory / "claims", os.getpid(), time.monotonic() + 0.3)
                _report(failures, directory, workers, claims, manager)
                if stopping.is_set():
                    return


def _report(failures: list[str], directory: Path, workers: list[Worker], claims: int, manager: Manager) -> None:
    loaded = manager.load()
    found = {key: checkpoint.data for key, checkpoint in loaded.checkpoints.items()}
    expected = {key: value for worker in workers for key, value in worker.expected.items()}
    failures += [f"{key}: {problem}" for key, problem in loaded.problems.items()]
    failures += [
        f"{key} is not what was written"
        for key in found.keys() | expected.keys()
        if found.get(key) != expected.get(key)
    ]
    gc.collect()
    said = {
        "failures": failures,
        "operations": sum(worker.operations for worker in workers) + claims,
        "threads": threading.active_count(),
        **held_by(),
        **contents(directory),
    }
    print(json.dumps(said), flush=True)


def _in_threads(works: Sequence[Callable[[], None]]) -> list[str]:
    failures: list[str] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - reported, and judged by the supervisor
            failures.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():  # in a loop: a signal delivered to another thread does not wake a waiting one
            thread.join(0.1)
    return failures


def run_mortal(directory: Path, threads: int, keys: int, first: int) -> None:
    """Report begin and end of every change on standard output; stop cleanly on SIGTERM."""
    numbers = itertools.count(first)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())

    def change(own: list[str], dice: random.Random) -> None:
        while not stopping.is_set():
            number = next(numbers)
            touched = {key: dice.random() < 0.8 for key in dice.sample(own, 3 if dice.random() < 0.2 else 1)}
            changes = " ".join(f"{key}={number if put else '-'}" for key, put in touched.items())
            os.write(1, f"begin {number} {changes}\n".encode())
            value = {"number": number, "filler": "x" * dice.randrange(3000)}
            with manager.batch() as batch:
                for key, put in touched.items():
                    batch.create_checkpoint(key, value) if put else batch.remove_checkpoint(key)
            os.write(1, f"done {number} {changes}\n".encode())

    shares = [[f"key-{k}" for k in range(n, keys, threads)] for n in range(threads)]
    with CheckpointManager(directory) as manager:
        failures = _in_threads([partial(change, own, random.Random(f"{first}-{own}")) for own in shares])
    for failure in failures:
        os.write(1, f"failed 0 {failure}\n".encode())


def main() -> None:
    role, directory, threads, keys, first = sys.argv[1:]
    if role == "steady":
        run_steady(Path(directory), int(threads), int(keys))
    else:
        run_mortal(Path(directory), int(threads), int(keys), int(first))


if __name__ == "__main__":
    main()
