"""Measures everything in one run. See README.md beside this file for what the figures mean.

tools/bench/run                       the full run, about nine minutes
tools/bench/run --quick               under a minute, for a first look
tools/bench/run --compare OLD NEW     two result files side by side
tools/bench/run --draw FIGURES        draw the plots of a result file again
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

from . import single, slowdisk, workloads
from .aims import aims_table, outcomes
from .bare import BareClassic
from .contender import Contender
from .contenders import OURS, installed
from .machine import describe
from .plots import draw
from .report import Figures, comparison, table
from .volume import Place, place

HERE = Path(__file__).parent

Comparisons = dict[str, workloads.Result]  # by title


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tools/bench/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rounds and no 10,000 claims: under a minute")
    parser.add_argument("--directory", type=Path, help="where to measure; by default a folder in the clone")
    parser.add_argument(
        "--as-it-is", action="store_true", help="make no ext4 image where the library waits for two syncs"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CONTENDER", help="compare only these, and skip our own figures"
    )
    parser.add_argument("--output", type=Path, help="write figures and plots here, not to tools/bench/results")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="compare two result files")
    parser.add_argument("--draw", type=Path, metavar="FIGURES", help="draw the plots of this result file")
    arguments = parser.parse_args()
    if arguments.compare:
        old, new = (json.loads(path.read_text(encoding="utf-8")) for path in arguments.compare)
        print(comparison(old, new))
        return
    output = arguments.output or HERE / "results"
    if arguments.draw:
        draw(json.loads(arguments.draw.read_text(encoding="utf-8")), output)
        return
    try:
        contenders, absent = installed(arguments.only)
    except ValueError as error:
        parser.error(str(error))
    for name in absent:
        say(f"{name} is left out: its package is not installed")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the image is unmounted
    image_bytes = (256 if arguments.quick else 1024) << 20
    with place(arguments.directory, image_bytes=image_bytes, as_it_is=arguments.as_it_is) as where:
        say(where.note)
        figures = run(where, contenders, quick=arguments.quick, alone=not arguments.only)
    print(table(figures))
    print()
    print(aims_table(figures))
    if not arguments.quick or arguments.output:
        save(figures, output)


def run(where: Place, contenders: list[Contender], *, quick: bool, alone: bool) -> Figures:
    """`alone` adds our own figures that have no counterpart."""
    folder = where.folder
    figures: Figures = {
        "machine": describe(where),
        "durable": {contender.name: contender.durable for contender in contenders},
        "settings": {contender.name: contender.settings for contender in contenders},
        "comparisons": updates(folder, contenders, quick=quick) | others(folder, contenders, quick=quick),
        "single": singles(folder, contenders, quick=quick) if alone else {},
    }
    figures["aims"] = outcomes(figures)
    return figures


def updates(folder: Path, contenders: list[Contender], *, quick: bool) -> Comparisons:
    """Update one claim after another: by the number of claims present, by the number of threads, and on a slow disk."""
    presents, threads = ((10, 1_000), (1, 16)) if quick else ((10, 100, 1_000, 10_000), (1, 4, 16, 64))
    rounds, calls = (2, 40) if quick else (10, 200)
    update = partial(workloads.update, rounds=rounds)
    results = {}
    for present in presents:
        title = f"update, {present} present, 1 thread"
        say(title)
        quick_enough = [c for c in contenders if present < 10_000 or c.name != "shelve (dbm.dumb)"]
        results[title] = update(folder / title, quick_enough, present=present, threads=1, calls=calls // 2)
    for count in threads:
        title = f"update, 256 present, {count} {'thread' if count == 1 else 'threads'}"
        say(title)
        enough = max(calls, count * (8 if quick else 24))
        results[title] = update(folder / title, contenders, present=256, threads=count, calls=enough)
    title = "16 threads on one core"
    say(title)
    with workloads.one_core():
        results[title] = update(folder / title, contenders, present=256, threads=16, calls=calls)
    title = f"slow disk, {slowdisk.PRESENT} present, 1 thread"
    if shutil.which("cc"):
        say(f"{title}: each flush takes {slowdisk.DELAY_MS} ms more")
        names = [contender.name for contender in contenders]
        results[title] = slowdisk.update(folder / title, names, rounds=2 if quick else 8, calls=8 if quick else 40)
    else:
        say(f"{title}: SKIPPED, it needs a C compiler called cc")
    return results


def others(folder: Path, contenders: list[Contender], *, quick: bool) -> Comparisons:
    """Flatness, batch, transaction, first write, removal and restart. The bare loops only show what an update costs."""
    say("flat, batch, transaction, create, remove")
    rounds, calls = (2, 10) if quick else (10, 50)
    whole = [contender for contender in contenders if not isinstance(contender, BareClassic)]
    ours = [contender for contender in contenders if contender.name == OURS]
    together, one_by_one = workloads.batch(folder / "batch", whole, present=256, size=100, rounds=rounds)
    first, gone = workloads.create_and_remove(folder / "new", whole, present=256, rounds=rounds, calls=calls)
    results = {
        "batch of 100": together,
        "100 updates one by one": one_by_one,
        "transaction of 4": workloads.transact(
            folder / "together", whole, present=256, size=4, rounds=rounds, calls=calls
        ),
        "first write of a new key": first,
        "remove": gone,
    }
    if ours:
        presents = (10, 1_000) if quick else (10, 10_000)
        results["flat"] = workloads.flat(
            folder / "flat", ours[0], presents=presents, rounds=2 * rounds, calls=2 * calls
        )
    for present in (1_000,) if quick else (1_000, 10_000):
        for cold in (False, True) if os.geteuid() == 0 and not quick else (False,):
            title = f"restart, {present} claims, {'cold' if cold else 'warm'}"
            say(title)
            results[title] = workloads.restart(
                folder / title, whole, present=present, rounds=3 if quick else 5, cold=cold
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
    output.mkdir(parents=True, exist_ok=True)
    (output / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    draw(figures, output)
    say(f"written to {output}")


def say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
