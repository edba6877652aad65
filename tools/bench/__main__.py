"""Measures everything in one run. See README.md beside this file for what the figures mean.

tools/bench/run                       the full run, some ten minutes
tools/bench/run --quick               a first look; writes nothing
tools/bench/run --compare OLD NEW     two result files side by side
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from pathlib import Path

from . import flushes, own, workloads
from .aims import Figures, outcomes
from .contenders import everybody
from .report import comparison, report
from .volume import Volume, describe, place

HERE = Path(__file__).parent
THREADS = {1: "1 thread", 4: "4 threads", 16: "16 threads"}
BATCH = 100


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tools/bench/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rounds and no 10,000 claims")
    parser.add_argument("--directory", type=Path, help="measure here (default: as root an ext4 image in the clone)")
    parser.add_argument("--output", type=Path, help="write the figures here, not to tools/bench/results")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="compare two result files")
    arguments = parser.parse_args()
    if arguments.compare:
        old, new = (json.loads(path.read_text(encoding="utf-8")) for path in arguments.compare)
        print(comparison(old, new))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the image is unmounted
    with place(arguments.directory, image_bytes=(512 if arguments.quick else 1024) << 20) as where:
        say(where.note)
        figures = run(where, quick=arguments.quick)
    print(report(figures))
    if not arguments.quick or arguments.output:
        output = arguments.output or HERE / "results"
        output.mkdir(parents=True, exist_ok=True)
        (output / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        (output / "report.md").write_text(report(figures), encoding="utf-8")
        say(f"written to {output}")


def run(where: Volume, *, quick: bool) -> Figures:
    folder = where.folder
    figures: Figures = {
        "machine": describe(where),
        "durable": {contender.name: contender.durable for contender in everybody()},
        "settings": {contender.name: contender.settings for contender in everybody()},
        "comparisons": comparisons(folder, quick=quick),
        "syncs per change": {},
        "own": ours(folder, quick=quick),
    }
    if shutil.which("cc"):
        say("slow disk, syncs per change")
        slow = flushes.slow_disk(folder / "slow", rounds=2 if quick else 8, calls=2 if quick else 10)
        figures["comparisons"]["slow disk, life of a claim"] = slow
        figures["syncs per change"] = flushes.per_change(folder / "count", calls=200 if quick else 10_000)
    else:
        say("slow disk, syncs per change: SKIPPED, they need a C compiler called cc")
    figures["aims"] = outcomes(figures)
    return figures


def comparisons(folder: Path, *, quick: bool) -> dict[str, workloads.Result]:
    """Every workload by its title."""
    rounds, calls = (2, 48) if quick else (10, 480)
    results = {}
    for threads, who in THREADS.items():
        hot_calls = calls if quick or threads > 1 else 1_000  # ten rounds are the 10,000 calls of the longest one
        works = {
            f"life of a claim, {who}": workloads.lives(calls // 4),
            f"transaction of 4, {who}": workloads.transactions(threads, calls // 4),
            f"hot update, {who}": workloads.hot_updates(threads, hot_calls),
        }
        for title, work in works.items():
            say(title)
            results[title] = workloads.compare(
                folder / title, work, present=workloads.HOT, threads=threads, rounds=rounds
            )
    title = "wide update, 1 thread"
    say(title)
    work = workloads.hot_updates(1, calls, keys=workloads.WIDE)
    results[title] = workloads.compare(folder / title, work, present=workloads.WIDE, threads=1, rounds=rounds)
    for present in (10, 1_000) if quick else (10, 1_000, 10_000):
        title = f"update, {present} present"
        say(title)
        work = workloads.hot_updates(1, calls // 4, keys=10)
        results[title] = workloads.compare(folder / title, work, present=present, threads=1, rounds=rounds)
    title = f"batch of {BATCH}"
    say(title)
    results[title] = workloads.compare(
        folder / title, workloads.batches(BATCH), present=BATCH, threads=1, rounds=2 * rounds
    )
    present = 1_000 if quick else 10_000
    say(f"restart, {present} claims")
    results[f"restart, {present} claims"] = workloads.restart(folder / "restart", present=present, rounds=rounds)
    return results


def ours(folder: Path, *, quick: bool) -> dict[str, dict[str, float]]:
    say("our own figures")
    present = 1_000 if quick else 10_000
    return {
        "Python calls": own.python_calls(folder / "calls"),
        "start after kill -9": own.start_after_kill(folder / "killed", present=present, rounds=2 if quick else 10),
        "cache read": own.cache_read(folder / "read", present=1_000, seconds=0.2 if quick else 3),
        "import": own.importing(),
    }


def say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
