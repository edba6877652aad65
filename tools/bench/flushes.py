"""Counts the flushes of all contenders, or makes each take 5 ms longer: flush_delay.c is preloaded into a child.

python -m bench.flushes count|slow FOLDER ROUNDS CALLS    is that child, and prints its figures as JSON
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from . import workloads

DELAY_MS = 5
SOURCE = Path(__file__).with_name("flush_delay.c")


def slow_disk(folder: Path, *, rounds: int, calls: int) -> workloads.Result:
    """The life of a claim, one thread, on a disk whose flushes are slow. Needs `cc`."""
    return _in_child("slow", folder, rounds, calls)


def per_change(folder: Path, *, calls: int) -> workloads.Result:
    """Flushes per change (or transaction), the close included, by contender and kind of change. Needs `cc`."""
    return _in_child("count", folder, 1, calls)


def _in_child(what: str, folder: Path, rounds: int, calls: int) -> workloads.Result:
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "bench.flushes", what, str(folder), str(rounds), str(calls)]
    environment = preloaded(folder)
    child = subprocess.run(command, env=environment, cwd=SOURCE.parent.parent, stdout=subprocess.PIPE, check=True)
    shutil.rmtree(folder)
    result: workloads.Result = json.loads(child.stdout)
    return result


def preloaded(folder: Path) -> Mapping[str, str]:
    """Compile the library into this folder. Returns the environment of a child that loads it before the C library."""
    library = folder / "flush_delay.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    # Preloaded by name and search path, because LD_PRELOAD ends a path at its first space.
    paths = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "LD_PRELOAD": library.name, "LD_LIBRARY_PATH": os.pathsep.join(paths)}


@contextmanager
def slow_flushes(milliseconds: int = DELAY_MS) -> Iterator[None]:
    """In the child: inside the block, every flush takes this much longer."""
    delay = ctypes.c_long.in_dll(ctypes.CDLL(None), "bench_flush_delay_us")
    delay.value = milliseconds * 1000
    try:
        yield
    finally:
        delay.value = 0


def flushes() -> int:
    """In the child: the number of flushes so far."""
    return ctypes.c_long.in_dll(ctypes.CDLL(None), "bench_flushes").value


def _count(folder: Path, calls: int) -> workloads.Result:
    stories = {
        "life of a claim": (workloads.lives(calls // 4), 4),
        "hot update": (workloads.hot_updates(1, calls), 1),
        "create": (workloads.creates(calls // 4), 1),
        "transaction of 4": (workloads.transactions(1, calls // 4), 1),
    }
    counted: workloads.Result = {}
    for story, (work, changes) in stories.items():
        with workloads.opened(folder / story, workloads.HOT) as contenders:
            for contender in contenders:
                calls_made = work(contender, 0)
                before = flushes()
                for call in calls_made:
                    call()
                contender.close()
                made = flushes() - before
                contender.open(folder / story / contender.name)
                counted.setdefault(contender.name, {})[story] = made / len(calls_made) / changes
    return counted


def main() -> None:
    what, path, rounds, calls = sys.argv[1:]
    folder = Path(path)
    if what == "count":
        json.dump(_count(folder, int(calls)), sys.stdout)
        return
    work = workloads.lives(int(calls))
    result = workloads.compare(
        folder / "lives", work, present=workloads.HOT, threads=1, rounds=int(rounds), while_measuring=slow_flushes
    )
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
