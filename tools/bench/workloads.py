"""What agents do, as workloads. Each opens all contenders in separate folders, and lets them take turns.

Every thread has its own keys, as in an agent; what two threads do to one key is not a question of speed.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from .claims import claim, key_of, random_numbers
from .contenders import Contender, everybody
from .measure import Sample, in_threads, in_turns

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
        samples = in_turns(rounds, {each.name: slice_of(each) for each in contenders})
    return {name: sample.result() for name, sample in samples.items()}


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
        samples = in_turns(rounds, {each.name: slice_of(each) for each in contenders})
    return {name: sample.result() for name, sample in samples.items()}


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
