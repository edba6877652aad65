"""The workloads that are measured. Each opens its contenders in separate folders, and lets them take turns."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from copy import copy
from functools import partial
from pathlib import Path

from .claims import claim, key_of, random_numbers
from .contender import Contender, State, Transacting
from .measure import Sample, in_threads, in_turns

FILL_AT_ONCE = 500
WARM_UP = 200  # updates before the clock starts, besides two of each claim: then we have all our spares
IN_USE = 256  # claims that are updated, whatever else is present
Result = dict[str, dict[str, float]]  # contender -> figures

_changes = itertools.count(1)  # every update writes different bytes from all before it


def update(
    folder: Path,
    contenders: list[Contender],
    *,
    present: int,
    threads: int,
    rounds: int,
    calls: int,
    while_measuring: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Result:
    """Durable updates of random claims by `threads` threads, as an agent that has run for a while makes them."""
    in_use = min(present, IN_USE)
    with opened(folder, contenders, present) as names:
        warm_up(folder, names, in_use)
        slices = {name: _updating(contender, in_use, threads, calls) for name, contender in names.items()}
        with while_measuring():
            samples = in_turns(rounds, slices)
    return {name: sample.result() for name, sample in samples.items()}


def flat(folder: Path, contender: Contender, *, presents: tuple[int, ...], rounds: int, calls: int) -> Result:
    """One contender with few claims present and with many, in turns; the figures are by number of claims."""
    slices = {}
    with ExitStack() as stack:
        for present in presents:
            names = stack.enter_context(opened(folder / str(present), [contender := copy(contender)], present))
            in_use = min(presents)  # the same claims everywhere: only what else is present differs
            warm_up(folder, names, in_use)
            slices[f"{present} present"] = _updating(contender, in_use, 1, calls)
        samples = in_turns(rounds, slices)
    return {name: sample.result() for name, sample in samples.items()}


def _updating(contender: Contender, in_use: int, threads: int, calls: int) -> Callable[[int], Sample]:
    def run(number: int) -> Sample:
        states = [claim(n, next(_changes)) for n in random_numbers(calls, in_use, number)]
        return in_threads(threads, [partial(contender.update, state) for state in states])

    return run


def batch(folder: Path, contenders: list[Contender], *, present: int, size: int, rounds: int) -> tuple[Result, Result]:
    """`size` updates in one batch, and the same number one by one."""
    with opened(folder, contenders, present) as names:
        warm_up(folder, names, present)

        def states(number: int) -> list[State]:
            chosen = dict.fromkeys(random_numbers(size * 4, present, number))
            return [claim(n, next(_changes)) for n in list(chosen)[:size]]

        def together(contender: Contender, number: int) -> Sample:
            return in_threads(1, [partial(contender.update_many, states(number))])

        def one_by_one(contender: Contender, number: int) -> Sample:
            def run(changed: list[State]) -> None:
                for state in changed:
                    contender.update(state)

            return in_threads(1, [partial(run, states(number))])

        slices = {
            (name, way): partial(way, contender) for name, contender in names.items() for way in (together, one_by_one)
        }
        samples = in_turns(rounds, slices)
    results = {key: sample.result() for key, sample in samples.items()}
    return {name: results[name, together] for name in names}, {name: results[name, one_by_one] for name in names}


def transact(folder: Path, contenders: list[Contender], *, present: int, size: int, rounds: int, calls: int) -> Result:
    """Update `size` claims together or not at all; the floor cannot do that, and makes the updates one by one."""
    able = [contender for contender in contenders if isinstance(contender, Transacting) or contender.name == "floor"]
    apart = present // size  # so that no claim is twice in one transaction
    with opened(folder, able, present) as names:
        warm_up(folder, names, present)

        def slice_of(contender: Contender) -> Callable[[int], Sample]:
            change = contender.update_together if isinstance(contender, Transacting) else contender.update_many

            def run(number: int) -> Sample:
                chosen = random_numbers(calls, apart, number)
                groups = [[claim(n + part * apart, next(_changes)) for part in range(size)] for n in chosen]
                return in_threads(1, [partial(change, group) for group in groups])

            return run

        samples = in_turns(rounds, {name: slice_of(contender) for name, contender in names.items()})
    return {name: sample.result() for name, sample in samples.items()}


def create_and_remove(
    folder: Path, contenders: list[Contender], *, present: int, rounds: int, calls: int
) -> tuple[Result, Result]:
    """The first write of new claims, and their removal."""
    with opened(folder, contenders, present) as names:
        fresh = itertools.count(present)
        created: dict[tuple[str, int], list[int]] = {}

        def creating(name: str, contender: Contender) -> Callable[[int], Sample]:
            def run(number: int) -> Sample:
                created[name, number] = [next(fresh) for _ in range(calls)]
                return in_threads(1, [partial(contender.update, claim(n)) for n in created[name, number]])

            return run

        def removing(name: str, contender: Contender) -> Callable[[int], Sample]:
            def run(number: int) -> Sample:
                return in_threads(1, [partial(contender.remove, key_of(n)) for n in created[name, number]])

            return run

        first = in_turns(rounds, {name: creating(name, contender) for name, contender in names.items()})
        gone = in_turns(rounds, {name: removing(name, contender) for name, contender in names.items()})
    return (
        {name: sample.result() for name, sample in first.items()},
        {name: sample.result() for name, sample in gone.items()},
    )


def restart(folder: Path, contenders: list[Contender], *, present: int, rounds: int, cold: bool) -> Result:
    """Open, and read everything into objects; `cold` drops the page cache before (needs root)."""
    with opened(folder, contenders, present) as names:
        for contender in names.values():
            contender.close()

        def slice_of(name: str, contender: Contender) -> Callable[[int], Sample]:
            def run(_: int) -> Sample:
                if cold:
                    drop_caches()
                started = time.perf_counter()
                contender.open(folder / name)
                loaded = contender.load()
                seconds = time.perf_counter() - started
                contender.close()
                assert len(loaded) == present, f"{name} loaded {len(loaded)} of {present}"
                return Sample([seconds], 1, seconds)

            return run

        samples = in_turns(rounds, {name: slice_of(name, contender) for name, contender in names.items()})
        for name, contender in names.items():
            contender.open(folder / name)
    return {name: sample.result() for name, sample in samples.items()}


@contextmanager
def opened(folder: Path, contenders: list[Contender], present: int) -> Iterator[dict[str, Contender]]:
    """Open each contender in its own folder with `present` claims. The folders are removed at the end."""
    names = {contender.name: contender for contender in contenders}
    for name, contender in names.items():
        (folder / name).mkdir(parents=True)
        contender.open(folder / name)
        for start in range(0, present, FILL_AT_ONCE):
            contender.fill([claim(n) for n in range(start, min(present, start + FILL_AT_ONCE))])
    settle(folder)
    try:
        yield names
    finally:
        for contender in names.values():
            contender.close()
        shutil.rmtree(folder)


def warm_up(folder: Path, names: dict[str, Contender], in_use: int) -> None:
    """The first updates of a new process may take another way than all later ones; ours make spares."""
    for contender in names.values():
        for _ in range(max(2, WARM_UP // in_use)):
            contender.fill([claim(n, next(_changes)) for n in range(in_use)])
    settle(folder)


def settle(folder: Path) -> None:
    """Sync this file system and no other, so that what was filled without syncs is not written during a measurement."""
    descriptor = os.open(folder, os.O_RDONLY)
    ctypes.CDLL(None).syncfs(descriptor)
    os.close(descriptor)


@contextmanager
def one_core() -> Iterator[None]:
    """Inside the block, whatever this thread starts shares one core with it."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def drop_caches() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
