"""Makes the flushes of a disk take 5 ms longer for all contenders, with flush_delay.c preloaded into a child process.

python -m bench.slowdisk FOLDER ROUNDS CALLS CONTENDER...    is that child, and prints its figures as JSON
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
from .contenders import installed

DELAY_MS = 5
PRESENT = 256  # claims
SOURCE = Path(__file__).with_name("flush_delay.c")


def update(folder: Path, names: list[str], *, rounds: int, calls: int) -> workloads.Result:
    """workloads.update from one thread, in a child whose flushes are delayed. Needs `cc`."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "bench.slowdisk", str(folder), str(rounds), str(calls), *names]
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
def slow_flushes(milliseconds: int) -> Iterator[None]:
    """In the child: inside the block, every flush takes this much longer."""
    delay = ctypes.c_long.in_dll(ctypes.CDLL(None), "bench_flush_delay_us")
    delay.value = milliseconds * 1000
    try:
        yield
    finally:
        delay.value = 0


def flushes() -> int:
    """In the child: the number of flushes that were delayed so far."""
    return ctypes.c_long.in_dll(ctypes.CDLL(None), "bench_flushes").value


def main() -> None:
    folder, rounds, calls, *names = sys.argv[1:]
    contenders, _ = installed(names)
    result = workloads.update(
        Path(folder) / "update",
        contenders,
        present=PRESENT,
        threads=1,
        rounds=int(rounds),
        calls=int(calls),
        while_measuring=lambda: slow_flushes(DELAY_MS),
    )
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
