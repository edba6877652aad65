"""Measures all contenders in turns, slice by slice in one run, so that a noisy minute hits all of them alike."""

from __future__ import annotations

import gc
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

K = TypeVar("K")


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


def in_turns(rounds: int, slices: Mapping[K, Callable[[int], Sample]]) -> dict[K, Sample]:
    """Run every slice once per round; each slice gets the number of the round."""
    samples = {name: Sample() for name in slices}
    for number in range(rounds):
        for name, run in slices.items():
            gc.collect()
            part = run(number)
            samples[name].seconds += part.seconds
            samples[name].calls += part.calls
            samples[name].wall += part.wall
    return samples


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
