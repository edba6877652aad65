"""What agents do, as workloads. Each opens all contenders in separate folders.

They take turns, slice by slice in one run, so that a noisy minute hits all of them alike.

Every thread has its own keys, as in an agent; what two threads do to one key is not a question of speed.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from .claims import claim, key_of, random_numbers
from .contenders import Contender, everybody

FILL_AT_ONCE = 500
HOT = 64  # keys that are changed again and again
WIDE = 600  # keys, more than a journal keeps dirty
TOGETHER = 4  # keys of a transaction

Call = Callable[[], object]
Work = Callable[[Contender, int], list[Call]]  # the calls of one round, by contender and number of the round
Result = dict[str, dict[str, float]]  # contender -> figures

_changes = itertools.count(1)  # every update writes different bytes from all before it
_lives = itertools.count(1_000_000)  # every life has a new key


def hot_updates(threads: int, calls: int, keys: int = HOT) -> Work:
    """Updates of a few keys."""

    def work(contender: Contender, turn: int) -> list[Call]:
        numbers = own_numbers(threads, keys // threads, calls, turn)
        return [partial(contender.update, claim(number, next(_changes))) for number in numbers]

    return work


def lives(calls: int) -> Work:
    """The life of a claim: created, updated twice, removed."""

    def work(contender: Contender, turn: int) -> list[Call]:
        return [partial(live, contender, next(_lives)) for _ in range(calls)]

    return work


def live(contender: Contender, number: int) -> None:
    for change in range(3):
        contender.update(claim(number, change))
    contender.remove(key_of(number))


def transactions(threads: int, calls: int) -> Work:
    """Four of the hot keys together."""

    def work(contender: Contender, turn: int) -> list[Call]:
        groups = own_numbers(threads, HOT // TOGETHER // threads, calls, turn)
        keys = [range(TOGETHER * group, TOGETHER * (group + 1)) for group in groups]
        return [
            partial(contender.update_together, [claim(number, next(_changes)) for number in group]) for group in keys
        ]

    return work


def creates(calls: int) -> Work:
    """First writes of keys that stay."""

    def work(contender: Contender, turn: int) -> list[Call]:
        return [partial(contender.update, claim(next(_lives))) for _ in range(calls)]

    return work


def batches(size: int) -> Work:
    """One batch of updates."""

    def work(contender: Contender, turn: int) -> list[Call]:
        return [partial(contender.update_many, [claim(number, next(_changes)) for number in range(size)])]

    return work


def own_numbers(threads: int, each: int, calls: int, seed: int) -> list[int]:
    """Random numbers below threads * each, such that the n-th thread, which makes every n-th call, has its own."""
    chosen = random_numbers(calls, each, seed)
    return [number * threads + call % threads for call, number in enumerate(chosen)]


def compare(
    folder: Path,
    work: Work,
    *,
    present: int,
    threads: int,
    rounds: int,
    while_measuring: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Result:
    """All contenders in turns, each with `present` claims, which have all been written twice."""

    def slice_of(contender: Contender) -> Callable[[int], Sample]:
        return lambda turn: in_threads(threads, work(contender, turn))

    with opened(folder, present) as contenders, while_measuring():
        return in_turns(rounds, {each.name: slice_of(each) for each in contenders})


def restart(folder: Path, *, present: int, rounds: int) -> Result:
    """Open, and read everything into objects."""

    def slice_of(contender: Contender) -> Callable[[int], Sample]:
        def run(_: int) -> Sample:
            contender.close()
            started = time.perf_counter()
            contender.open(folder / contender.name)
            loaded = contender.load()
            seconds = time.perf_counter() - started
            assert len(loaded) == present, f"{contender.name} loaded {len(loaded)} of {present}"
            return Sample([seconds], 1, seconds)

        return run

    with opened(folder, present) as contenders:
        return in_turns(rounds, {each.name: slice_of(each) for each in contenders})


@dataclass
class Sample:
    """Durations of single calls, and the wall time of the slices that they were made in."""

    seconds: list[float] = field(default_factory=list)
    calls: int = 0
    wall: float = 0.0

    def result(self) -> dict[str, float]:
        ordered = sorted(self.seconds)
        return {
            "median_us": statistics.median(ordered) * 1e6,
            "p99_us": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e6,
            "longest_us": ordered[-1] * 1e6,
            "per_second": self.calls / self.wall,
            "calls": self.calls,
        }


def in_turns(rounds: int, slices: dict[str, Callable[[int], Sample]]) -> Result:
    """Run every slice once per round; each slice gets the number of the round."""
    samples = {name: Sample() for name in slices}
    for number in range(rounds):
        for name, run in slices.items():
            gc.collect()
            part = run(number)
            samples[name].seconds += part.seconds
            samples[name].calls += part.calls
            samples[name].wall += part.wall
    return {name: sample.result() for name, sample in samples.items()}


def in_threads(threads: int, work: Sequence[Callable[[], object]]) -> Sample:
    """Make all calls, spread over this many threads, which start together."""
    parts = [work[start::threads] for start in range(threads)]
    durations: list[list[float]] = [[] for _ in parts]
    ready = threading.Barrier(threads)

    def run(number: int) -> None:
        ready.wait()
        for call in parts[number]:
            started = time.perf_counter()
            call()
            durations[number].append(time.perf_counter() - started)

    others = [threading.Thread(target=run, args=(number,)) for number in range(1, threads)]
    for thread in others:
        thread.start()
    started = time.perf_counter()
    run(0)  # this thread is one of them, so that one thread means one thread
    for thread in others:
        thread.join()
    wall = time.perf_counter() - started
    return Sample([second for part in durations for second in part], len(work), wall)


@contextmanager
def opened(folder: Path, present: int) -> Iterator[list[Contender]]:
    """Open each contender in its own folder with `present` claims. The folders are removed at the end."""
    contenders = everybody()
    for contender in contenders:
        (folder / contender.name).mkdir(parents=True)
        contender.open(folder / contender.name)
        for change in range(2):
            for start in range(0, present, FILL_AT_ONCE):
                contender.fill([claim(n, change) for n in range(start, min(present, start + FILL_AT_ONCE))])
    settle(folder)
    try:
        yield contenders
    finally:
        for contender in contenders:
            contender.close()
        shutil.rmtree(folder)


def settle(folder: Path) -> None:
    """Sync this file system and no other, so that what was filled without syncs is not written during a measurement."""
    descriptor = os.open(folder, os.O_RDONLY)
    ctypes.CDLL(None).syncfs(descriptor)
    os.close(descriptor)
