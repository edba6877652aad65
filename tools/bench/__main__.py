"""Measures everything in one run. See README.md beside this file for what the figures mean.

tools/bench/run                       the full run, about eight minutes
tools/bench/run --quick               under a minute, for a first look
tools/bench/run --compare OLD NEW     two result files side by side
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from . import single, workloads
from .contender import Contender
from .contenders import everybody
from .machine import describe
from .report import Figures, comparison, table

HERE = Path(__file__).parent

Comparisons = dict[str, workloads.Result]  # by title


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tools/bench/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rounds and no 10,000 claims: under a minute")
    parser.add_argument("--directory", type=Path, help="where to measure; by default a folder on this file system")
    parser.add_argument("--output", type=Path, help="write figures and plots here, not to tools/bench/results")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="compare two result files")
    arguments = parser.parse_args()
    if arguments.compare:
        old, new = (json.loads(path.read_text(encoding="utf-8")) for path in arguments.compare)
        print(comparison(old, new))
        return
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=arguments.directory))
    try:
        figures = run(folder, quick=arguments.quick)
    finally:
        shutil.rmtree(folder)
    print(table(figures))
    output = arguments.output or HERE / "results"
    if not arguments.quick or arguments.output:
        save(figures, output)


def run(folder: Path, *, quick: bool) -> Figures:
    contenders = everybody()
    return {
        "machine": describe(folder),
        "durable": {contender.name: contender.durable for contender in contenders},
        "settings": {contender.name: contender.settings for contender in contenders},
        "comparisons": updates(folder, contenders, quick=quick) | others(folder, contenders, quick=quick),
        "single": singles(folder, contenders, quick=quick),
    }


def updates(folder: Path, contenders: list[Contender], *, quick: bool) -> Comparisons:
    """One claim after the other: by the number of claims present, then by the number of threads."""
    presents, threads = ((10, 1_000), (1, 16)) if quick else ((10, 100, 1_000, 10_000), (1, 4, 16, 64))
    rounds, calls = (3, 40) if quick else (10, 200)
    update = partial(workloads.update, rounds=rounds)
    results = {}
    for present in presents:
        title = f"update, {present} present, 1 thread"
        say(title)
        quick_enough = [c for c in contenders if present < 10_000 or c.name != "shelve (dbm.dumb)"]
        results[title] = update(folder / title, quick_enough, present=present, threads=1, calls=calls // 2)
    for count in threads:
        title = f"update, 256 present, {count} thread{'s' * (count > 1)}"
        say(title)
        enough = max(calls, count * (8 if quick else 24))
        results[title] = update(folder / title, contenders, present=256, threads=count, calls=enough)
    title = "16 threads on one core"
    say(title)
    with workloads.one_core():
        results[title] = update(folder / title, contenders, present=256, threads=16, calls=calls)
    return results


def others(folder: Path, contenders: list[Contender], *, quick: bool) -> Comparisons:
    """Batch, first write, removal and restart."""
    say("batch, create, remove, restart")
    rounds, calls = (3, 10) if quick else (10, 50)
    together, one_by_one = workloads.batch(folder / "batch", contenders, present=256, size=100, rounds=rounds)
    first, gone = workloads.create_and_remove(folder / "new", contenders, present=256, rounds=rounds, calls=calls)
    results = {
        "batch of 100": together,
        "100 updates one by one": one_by_one,
        "first write of a new key": first,
        "remove": gone,
    }
    for present in (1_000,) if quick else (1_000, 10_000):
        for cold in (False, True) if os.geteuid() == 0 else (False,):
            title = f"restart, {present} claims, {'cold' if cold else 'warm'}"
            results[title] = workloads.restart(
                folder / title, contenders, present=present, rounds=3 if quick else 5, cold=cold
            )
    return results


def singles(folder: Path, contenders: list[Contender], *, quick: bool) -> dict[str, dict[str, float]]:
    say("our own figures")
    many = 1_000 if quick else 10_000
    return {
        "update by 4 processes that share": single.sharing(folder / "sharing", calls=20 if quick else 200),
        "cache read": single.cache_read(folder / "read", present=1_000, seconds=0.5 if quick else 3),
        "import": single.importing(),
        "metrics": single.metering(folder / "metrics", calls=50 if quick else 200),
        "restart by hand": single.restart_by_hand(folder / "by-hand", present=many),
        "restart from a cold disk": single.cold_restart(folder / "cold", present=many),
        "memory": single.memory(present=many),
        "bytes written per update, 1,000 present": single.bytes_written(folder / "bytes", contenders, present=1_000),
        "verify": single.verify(
            folder / "verify", large_files=4 if quick else 16, megabytes=16, small_files=2_000 if quick else 20_000
        ),
    }


def save(figures: Figures, output: Path) -> None:
    from .plots import draw  # noqa: PLC0415  (matplotlib takes a second to import)

    output.mkdir(parents=True, exist_ok=True)
    (output / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    draw(figures, output)
    say(f"written to {output}")


def say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
