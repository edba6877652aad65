"""Measures what has no counterpart: cache reads, import, memory, bytes written, verify, sharing."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
import timeit
import tracemalloc
from functools import partial
from pathlib import Path
from unittest import mock

import orjson
from prometheus_client import CollectorRegistry
from xxhash import xxh3_64_hexdigest

from checkpointmanager import CheckpointManager, MemoryStore, _readahead
from checkpointmanager._gcpause import gc_paused
from checkpointmanager.metrics import CheckpointMetrics
from draState import CLAIMS, ClaimInfo, ClaimInfoCache

from .bare import Files
from .claims import as_json, claim, from_json, key_of
from .contender import Contender
from .measure import Sample
from .workloads import drop_caches, opened

PROCESSES = 4


def cache_read(folder: Path, *, present: int, seconds: float) -> dict[str, float]:
    """Nanoseconds for one read of a claim by UID: alone, and while four threads write."""
    cache = ClaimInfoCache(folder)
    cache.put(*(ClaimInfo(claim(n)) for n in range(present)))
    uid = key_of(present // 2)
    alone = _nanoseconds(cache, uid, seconds)
    stop = threading.Event()

    def write(first: int) -> None:
        change = 0
        while not stop.is_set():
            change += 1
            cache.put(ClaimInfo(claim(first, change)))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    with_writers = _nanoseconds(cache, uid, seconds)
    stop.set()
    for writer in writers:
        writer.join()
    cache.close()
    return {"alone_ns": alone, "with_4_writers_ns": with_writers}


def _nanoseconds(cache: ClaimInfoCache, uid: str, seconds: float) -> float:
    """The median over many short runs, so that a run that had to share its core does not count as a slow read."""
    get = cache.get
    runs = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        runs.append(timeit.timeit(lambda: get(uid), number=200) / 200)
    return statistics.median(runs) * 1e9


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
        "milliseconds": statistics.median(run[0] for run in runs) * 1e3,
        "mebibytes": statistics.median(run[1] for run in runs) / (1 << 20),
    }


def memory(*, present: int) -> dict[str, float]:
    """Bytes of memory that a claim in the cache takes, against its JSON."""
    json_bytes = sum(len(orjson.dumps(as_json(claim(n)))) for n in range(present))
    store = MemoryStore()
    with CheckpointManager(store, CLAIMS) as manager, manager.batch() as batch:
        for n in range(present):
            batch.create_checkpoint(key_of(n), claim(n))
    tracemalloc.start()
    cache = ClaimInfoCache(store)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(cache) == present
    return {"bytes_per_claim": used / present, "json_bytes": json_bytes / present, "ratio": used / json_bytes}


def verify(folder: Path, *, large_files: int, megabytes: int, small_files: int) -> dict[str, float]:
    """CheckpointManager.verify over warm files, against merely hashing the same bytes."""
    figures: dict[str, float] = {}
    for name, count, data in (("large", large_files, "x" * (megabytes << 20)), ("small", small_files, "x" * 600)):
        with CheckpointManager(folder / name, durability="atomic") as manager:
            with manager.batch() as batch:
                for number in range(count):
                    batch.create_checkpoint(f"key-{number}", data)
            size = sum(entry.stat().st_size for entry in (folder / name).glob("*.json"))
            ours = min(timeit.repeat(manager.verify, number=1, repeat=5))
        bare = min(timeit.repeat(partial(_hash, folder / name), number=1, repeat=5))
        figures |= {
            f"{name}_gigabytes_per_second": size / ours / 1e9,
            f"{name}_files_per_second": count / ours,
            f"{name}_share_of_bare_hashing": bare / ours,
        }
    return figures


def _hash(folder: Path) -> None:
    """Hash all files with xxhsum if it is installed, otherwise with a loop that reads and hashes."""
    if xxhsum := shutil.which("xxhsum"):
        subprocess.run([xxhsum, "-H3", *folder.glob("*.json")], stdout=subprocess.DEVNULL, check=True)
        return
    for path in folder.glob("*.json"):
        xxh3_64_hexdigest(path.read_bytes())


def sharing(folder: Path, *, calls: int) -> dict[str, float]:
    """Durable updates by four processes that share a directory."""
    with CheckpointManager(folder, CLAIMS, sharing=True) as manager:
        for number in range(PROCESSES):
            manager.create_checkpoint(key_of(number), claim(number))
    context = multiprocessing.get_context("spawn")
    with context.Pool(PROCESSES) as pool:
        pool.starmap(_share, [(str(folder), number, 1) for number in range(PROCESSES)])
        started = time.perf_counter()
        parts = pool.starmap(_share, [(str(folder), number, calls) for number in range(PROCESSES)], chunksize=1)
        wall = time.perf_counter() - started
    return Sample([second for part in parts for second in part], PROCESSES * calls, wall).result()


def _share(folder: str, number: int, calls: int) -> list[float]:
    durations = []
    with CheckpointManager(folder, CLAIMS, sharing=True, lock_timeout=60) as manager:
        for change in range(calls):
            started = time.perf_counter()
            manager.create_checkpoint(key_of(number), claim(number, change + os.getpid()))
            durations.append(time.perf_counter() - started)
    return durations


def metering(folder: Path, *, calls: int) -> dict[str, float]:
    """Microseconds of processor time that metrics add to a write; the disk, which takes far more, is left out."""
    metered = CheckpointMetrics(CollectorRegistry())
    with (
        CheckpointManager(folder / "plain") as plain,
        CheckpointManager(folder / "metered", metrics=metered) as measured,
        mock.patch.object(os, "fsync", int),
    ):
        rounds = [[_processor_seconds(manager, calls) for manager in (plain, measured)] for _ in range(15)]
    without, with_meter = (min(seconds) for seconds in zip(*rounds, strict=True))
    return {"without_us": without * 1e6, "meter_adds_us": (with_meter - without) * 1e6}


def _processor_seconds(manager: CheckpointManager[object], calls: int) -> float:
    started = time.process_time()
    for number in range(calls):
        manager.create_checkpoint("a", {"number": number, "at": started})
    return (time.process_time() - started) / calls


def bytes_written(folder: Path, contenders: list[Contender], *, present: int) -> dict[str, float]:
    """Bytes handed to write(2) for one update, counted by the kernel."""
    updates = 20
    figures = {}
    with opened(folder, contenders, present) as names:
        for name, contender in names.items():
            before = _bytes_so_far()
            for number in range(updates):
                contender.update(claim(number, 1))
            figures[name] = (_bytes_so_far() - before) / updates
    return figures


def _bytes_so_far() -> int:
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(counters["wchar"])


def restart_by_hand(folder: Path, *, present: int) -> dict[str, float]:
    """Microseconds per claim: to read, hash and parse it in a bare loop, and to make unchecked objects from that."""
    plain = [as_json(claim(number)) for number in range(present)]
    with opened(folder, [Files("bare", sync_file=False, sync_directory=False)], present) as names, gc_paused():
        loading, making = (
            min(timeit.repeat(run, number=1, repeat=7)) / present * 1e6
            for run in (names["bare"].load, lambda: [from_json(members) for members in plain])
        )
    return {"bare_loop_us": loading, "objects_us": making, "ratio": (loading + making) / loading}


def cold_restart(folder: Path, *, present: int) -> dict[str, float]:
    """Milliseconds to load claims that are not in the page cache, with and without reading ahead (needs root)."""
    if os.geteuid() != 0:
        return {}
    with CheckpointManager(folder, CLAIMS) as manager, manager.batch() as batch:
        for number in range(present):
            batch.create_checkpoint(key_of(number), claim(number))
    seconds: dict[str, list[float]] = {"ahead": [], "one_after_the_other": []}
    for _ in range(5):
        for way, slow in (("ahead", _readahead.SLOW_SECONDS), ("one_after_the_other", float("inf"))):
            drop_caches()
            with mock.patch.object(_readahead, "SLOW_SECONDS", slow):
                started = time.perf_counter()
                with CheckpointManager(folder, CLAIMS) as manager:
                    manager.load()
                seconds[way].append(time.perf_counter() - started)
    ahead, one_after_the_other = (statistics.median(runs) * 1e3 for runs in seconds.values())
    return {
        "ahead_ms": ahead,
        "one_after_the_other_ms": one_after_the_other,
        "ratio": one_after_the_other / ahead,
    }
