"""Figures of ours that have no counterpart: Python calls, a start after kill -9, reads from the cache, the import."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from checkpointmanager import CheckpointManager, Schema
from draState import CLAIMS, ClaimInfo, ClaimInfoCache

from .claims import claim, key_of

LIBRARY = str(Path(sys.modules["checkpointmanager"].__file__ or "").parent)
TOOLS = Path(__file__).parent.parent
CHANGED = 250  # keys that the killed process has changed: nearly as many as a journal keeps dirty


@dataclass
class Lease:
    """The README's example: a small type, so that the calls counted are those of the way, not of the data."""

    holder: str
    renewals: int = 0


def python_calls(folder: Path) -> dict[str, float]:
    """Calls of our Python functions, and the files that they are in, for a create, a get and a transaction of 3."""
    with CheckpointManager(folder, Schema("Lease", version=1, type=Lease)) as manager:

        def transact(renewals: int) -> None:
            with manager.transaction() as transaction:
                for number in range(3):
                    transaction.create_checkpoint(f"pod-{number}", Lease("node-a", renewals))

        transact(0)  # what only the first call of a process does is not counted
        counted = {
            "create": _profiled(lambda: manager.create_checkpoint("pod-7", Lease("node-a"))),
            "get": _profiled(lambda: manager.get_checkpoint("pod-7")),
            "transaction of 3": _profiled(lambda: transact(1)),
        }
    return {f"{name}, {what}": count for name, counts in counted.items() for what, count in counts.items()}


def _profiled(act: Callable[[], object]) -> dict[str, int]:
    files: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(LIBRARY):
            files.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return {"calls": len(files), "files": len(set(files))}


def start_after_kill(folder: Path, *, present: int, rounds: int) -> dict[str, float]:
    """Milliseconds to open after kill -9, and after a close, in turns."""
    with CheckpointManager(folder, CLAIMS) as manager, manager.batch() as batch:
        for number in range(present):
            batch.create_checkpoint(key_of(number), claim(number))
    seconds: dict[str, list[float]] = {"killed": [], "clean": []}
    for turn in range(rounds):
        _change_and_be_killed(folder, turn + 1)
        for runs in seconds.values():
            started = time.perf_counter()
            manager = CheckpointManager(folder, CLAIMS)
            runs.append(time.perf_counter() - started)
            manager.close()
    killed, clean = (statistics.median(runs) * 1e3 for runs in seconds.values())
    return {"after_kill_ms": killed, "after_close_ms": clean, "more_ms": killed - clean}


def _change_and_be_killed(folder: Path, change: int) -> None:
    program = (
        "import sys, time; from bench.own import *\n"
        "manager = CheckpointManager(sys.argv[1], CLAIMS)\n"
        "for number in range(CHANGED): manager.create_checkpoint(key_of(number), claim(number, int(sys.argv[2])))\n"
        "print('changed', flush=True); time.sleep(3600)"
    )
    command = [sys.executable, "-c", program, str(folder), str(change)]
    with subprocess.Popen(command, cwd=TOOLS, stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdout.readline() == b"changed\n"
        child.send_signal(signal.SIGKILL)


def cache_read(folder: Path, *, present: int, seconds: float) -> dict[str, float]:
    """Nanoseconds for one read of a claim by UID."""
    with closing(ClaimInfoCache(folder)) as cache:
        cache.put(*(ClaimInfo(claim(number)) for number in range(present)))
        get, uid = cache.get, key_of(present // 2)
        runs = []
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            runs.append(timeit.timeit(lambda: get(uid), number=200) / 200)
    return {"ns": statistics.median(runs) * 1e9}  # of short runs: one that had to share its core does not count


def importing() -> dict[str, float]:
    """The time that `import checkpointmanager` adds to an interpreter that has imported its three dependencies."""
    program = (
        "import os, time; import orjson, xxhash, filelock\n"
        "def pages(): return int(open('/proc/self/statm').read().split()[1])\n"
        "before = pages(); started = time.perf_counter()\n"
        "import checkpointmanager\n"
        "print(time.perf_counter() - started, (pages() - before) * os.sysconf('SC_PAGE_SIZE'))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    runs = []
    for _ in range(12):
        command = [sys.executable, "-c", program]
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        runs.append([float(word) for word in printed.split()])
    del runs[0]  # the first run may have had to compile
    return {
        "ms": statistics.median(run[0] for run in runs) * 1e3,
        "MiB": statistics.median(run[1] for run in runs) / (1 << 20),
    }
