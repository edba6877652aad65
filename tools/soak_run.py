"""Soak test: changes state in many threads for a long time, and checks that nothing leaks and nothing is lost.

It runs in rounds. At the end of each round all threads have ended, every key must hold what was written last, and
memory, descriptors, threads and files are counted; they must not grow from round to round. Prints one line per minute,
then a verdict. Exit code 0 if it passed, 1 if not. Kills and power cuts are the business of tests/torture and
tests/crashes.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import shutil
import statistics
import sys
import tempfile
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
    PrepareResult,
    ResourceClaim,
)

ROUND_SECONDS = 5.0
LIVES = 4  # rounds with one manager; then it is closed and opened again
BATCH = 20
GPU = "gpu.example.com"
GROWTH_KIB = 8 << 10  # growth of memory from the second quarter to the last that does not count as a leak
GROWTH_SHARE = 0.05

Manager = CheckpointManager[Any]
Figures = dict[str, int]  # of one round


class Worker:
    """One thread: changes and reads its own keys, and knows what they must hold."""

    def __init__(self, directory: Path, number: int, keys: list[str]) -> None:
        self._directory = directory
        self._keys = keys
        self._dice = random.Random(number)
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
        path = self._directory / f"{key}.json"
        blob = bytearray(path.read_bytes())
        blob[self._dice.randrange(len(blob))] ^= 1 << self._dice.randrange(8)
        path.write_bytes(blob)
        manager.recover_checkpoint(key)

    def _value(self) -> dict[str, Any]:
        return {"number": self._dice.randrange(1 << 40), "filler": "x" * self._dice.randrange(3000)}


class Driver:
    """Prepares every claim."""

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        return {claim.uid: PrepareResult((Device("pool", claim.uid),)) for claim in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        return {claim.uid: "" for claim in claims}


def pods_come_and_go(directory: Path, until: float) -> int:
    """Prepare and unprepare claims in their own directory; none is left at the end."""
    cache = ClaimInfoCache(directory)
    manager = DRAManager(cache, {GPU: Driver()})
    turns = 0
    while time.monotonic() < until:
        for turn in range(10):
            claim = ResourceClaim(
                f"uid-{turn}", f"claim-{turn}", "default", {GPU: Allocation()}, frozenset({f"pod-{turn}"})
            )
            pod = Pod(f"pod-{turn}", f"pod-{turn}", "default", {"gpu": claim}, {})
            manager.prepare_resources(pod)
        for turn in range(10):
            manager.unprepare_resources(f"pod-{turn}")
        turns += 20
    assert len(cache) == 0
    cache.close()
    return turns


def in_threads(works: Sequence[Callable[[], None]]) -> list[str]:
    failures: list[str] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - reported in the verdict
            failures.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():  # in a loop: a signal delivered to another thread does not wake a waiting one
            thread.join(0.1)
    return failures


def used(directory: Path) -> Figures:
    """Memory in KiB, open descriptors and threads of this process, and what is in the directory."""
    files = [path.name for path in directory.rglob("*") if path.is_file()]
    gc.collect()
    return {
        "rss": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "files": len(files),
        "temps": sum(name.startswith(".tmp-") for name in files),
    }


def losses(manager: Manager, workers: Sequence[Worker]) -> list[str]:
    """Every key that does not hold what was written to it."""
    loaded = manager.load()
    found = {key: checkpoint.data for key, checkpoint in loaded.checkpoints.items()}
    expected = {key: value for worker in workers for key, value in worker.expected.items()}
    return [f"{key}: {problem}" for key, problem in loaded.problems.items()] + [
        f"{key} is not what was written"
        for key in found.keys() | expected.keys()
        if found.get(key) != expected.get(key)
    ]


def soak(minutes: float, directory: Path, threads: int, keys: int) -> list[str]:
    state = directory / "state"
    workers = [Worker(state, n, [f"key-{k}" for k in range(n, keys, threads)]) for n in range(threads)]
    rounds: list[Figures] = []
    failures: list[str] = []
    claims = 0
    started = time.monotonic()
    minute = 1
    while time.monotonic() - started < minutes * 60:
        with CheckpointManager(state) as manager:
            for _ in range(LIVES):
                until = time.monotonic() + ROUND_SECONDS
                failures += in_threads([partial(worker.work, manager, until) for worker in workers])
                claims += pods_come_and_go(directory / "claims", time.monotonic() + 0.3)
                failures += losses(manager, workers)
                rounds.append(used(directory))
        if time.monotonic() - started >= minute * 60:
            operations = sum(worker.operations for worker in workers) + claims
            shown = ", ".join(f"{value} {name}" for name, value in rounds[-1].items())
            print(f"minute {minute:3}: {operations} operations, {shown}, {len(failures)} failures", flush=True)
            minute = int((time.monotonic() - started) // 60) + 1
    print(f"{sum(worker.operations for worker in workers) + claims} operations in {len(rounds)} rounds")
    return verdict(rounds, failures, keys)


def growth(rounds: list[Figures], what: str) -> tuple[float, float]:
    """The medians of the second and of the last quarter; the first is warm-up."""
    quarter = max(len(rounds) // 4, 1)
    early = statistics.median(one[what] for one in rounds[quarter : 2 * quarter] or rounds)
    late = statistics.median(one[what] for one in rounds[-quarter:])
    return early, late


def verdict(rounds: list[Figures], failures: list[str], keys: int) -> list[str]:
    """Every reason to fail; empty if the test passed."""
    wrong = list(dict.fromkeys(failures))
    if len(rounds) < 4:
        return [*wrong, "there were too few rounds to judge: run longer"]
    early, late = growth(rounds, "rss")
    if late - early > max(GROWTH_KIB, early * GROWTH_SHARE):
        wrong.append(f"memory grew from {early:.0f} to {late:.0f} KiB")
    for name in ("descriptors", "threads"):
        early, late = growth(rounds, name)
        if late > early:
            wrong.append(f"{name} grew from {early:.0f} to {late:.0f}")
    if any(one["temps"] for one in rounds):
        wrong.append("temp files were left when no thread was writing")
    # Per key a checkpoint, its previous generation and four damaged copies; per directory a lock and a journal.
    if (most := max(one["files"] for one in rounds)) > 6 * keys + 4:
        wrong.append(f"the directory had {most} files, more than {keys} keys can need")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="duration (default: 60)")
    parser.add_argument("--threads", type=int, default=16, help="threads (default: 16)")
    parser.add_argument("--keys", type=int, default=320, help="keys (default: 320)")
    parser.add_argument("--directory", type=Path, help="a folder on the disk to test (default: the temp folder)")
    options = parser.parse_args()
    if not 1 <= options.threads <= options.keys:
        parser.error("--threads must be between 1 and --keys")
    directory = Path(tempfile.mkdtemp(prefix="soak-", dir=options.directory))
    wrong = soak(options.minutes, directory, options.threads, options.keys)
    if wrong:
        print(f"FAILED; the files are kept in {directory}:")
        for why in wrong[:20]:
            print(f"  {why}")
        return 1
    shutil.rmtree(directory)
    print("PASSED: nothing was lost, and memory, descriptors, threads and directories stayed flat")
    return 0


if __name__ == "__main__":
    sys.exit(main())
