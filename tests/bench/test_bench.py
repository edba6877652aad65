"""The benchmark measures what it says: its figures, its aims, its slow disk and the file system it makes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import aims, plots, slowdisk
from bench.svg import GREY
from bench.volume import TOOLS, place, waits_once

CONTENDERS = ["floor", "checkpointmanager", "sqlite3"]  # which need no extra
DELAY_MS = 40


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a quick run of few contenders printed, and the folder that it wrote to."""
    folder = tmp_path_factory.mktemp("bench run")
    # In memory where possible: a test is no measurement, and a busy disk would take minutes.
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(folder)
    command = [sys.executable, "-m", "bench", "--quick", "--as-it-is", "--directory", where]
    run = subprocess.run(
        [*command, "--output", str(folder / "results"), "--only", *CONTENDERS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert [entry.name for entry in folder.iterdir()] == ["results"]
    return run.stdout, folder / "results"


@pytest.fixture
def figures(quick_run: tuple[str, Path]) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((quick_run[1] / "figures.json").read_text(encoding="utf-8"))
    return loaded


def test_every_comparison_has_figures_of_every_contender(figures: dict[str, Any]) -> None:
    wanted = {
        "update, 256 present, 16 threads",
        "flat",
        "batch of 100",
        "transaction of 4",
        "restart, 1000 claims, warm",
    }
    if shutil.which("cc"):
        wanted.add("slow disk, 256 present, 1 thread")
    assert wanted <= set(figures["comparisons"])
    for title, rows in figures["comparisons"].items():
        assert set(rows) == ({"10 present", "1000 present"} if title == "flat" else set(CONTENDERS))
        for row in rows.values():
            assert set(row) == {"median_us", "p99_us", "per_second", "calls"}
            assert all(value > 0 for value in row.values())
    assert set(figures["durable"]) == set(figures["settings"]) == set(CONTENDERS)
    assert "sync" in figures["machine"]["place"]


def test_the_table_of_aims_says_of_each_whether_it_was_met(
    quick_run: tuple[str, Path], figures: dict[str, Any]
) -> None:
    outcomes = {row["what"]: row for row in figures["aims"]}
    assert list(outcomes) == [aim.what for aim in aims.AIMS]
    assert isinstance(outcomes["update, one thread: time, of the floor's"]["met"], bool)
    assert outcomes["16 threads: rate, of LMDB's"] == {
        "what": "16 threads: rate, of LMDB's",
        "aim": "at least 1",
        "measured": None,
        "met": None,
    }
    printed = quick_run[0][quick_run[0].index("aims (") :]
    for what, row in outcomes.items():
        line = next(line for line in printed.splitlines() if line.strip().startswith(what + " "))
        assert line.endswith({True: " met", False: " MISSED", None: " not measured"}[row["met"]])


def test_the_plots_for_the_readme_have_at_most_five_lines_and_text_that_is_text(quick_run: tuple[str, Path]) -> None:
    for name in ("readme-update-by-size", "readme-update-by-threads"):
        drawn = (quick_run[1] / f"{name}.svg").read_text(encoding="utf-8")
        labels = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
        assert set(CONTENDERS) <= set(labels)
        assert len(plots.COLOURS) <= 5
    assert {entry.suffix for entry in quick_run[1].iterdir()} == {".svg", ".json"}


@pytest.mark.parametrize("colour", [GREY, *plots.COLOURS.values(), *plots.OTHERS])
@pytest.mark.parametrize("background", ["#ffffff", "#0d1117"])
def test_every_colour_can_be_seen_on_white_and_on_black(colour: str, background: str) -> None:
    dark, light = sorted((luminance(colour), luminance(background)))
    assert (light + 0.05) / (dark + 0.05) >= 3.5


def luminance(colour: str) -> float:
    """As WCAG defines it."""
    shares = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("at_least", "measured", "met"), [(False, 2.0, True), (False, 2.1, False), (True, 2.0, True), (True, 1.9, False)]
)
def test_an_aim_is_met_up_to_its_limit(at_least: bool, measured: float, met: bool) -> None:
    aim = aims.Aim("speed", 2, lambda _: measured, at_least=at_least)
    assert aim.outcome({}) == {
        "what": "speed",
        "aim": "at least 2" if at_least else "at most 2",
        "measured": measured,
        "met": met,
    }


@pytest.mark.skipif(not shutil.which("cc"), reason="the slow disk needs a C compiler called cc")
@pytest.mark.parametrize("call", ["os.fsync(file)", "os.fdatasync(file)", "os.write(synced, b'x')"])
def test_a_flush_of_a_child_is_not_shorter_than_its_delay(call: str, tmp_path: Path) -> None:
    program = f"""
import os, sys, time
from bench.slowdisk import flushes, slow_flushes
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
synced = os.open(sys.argv[1], os.O_WRONLY | os.O_DSYNC)
{call}
assert flushes() == 0
with slow_flushes({DELAY_MS}):
    os.write(file, b"x")
    assert flushes() == 0
    started = time.perf_counter()
    {call}
    print(time.perf_counter() - started, flushes())
"""
    folder = tmp_path / "with a space"
    folder.mkdir()

    child = [sys.executable, "-c", program, str(tmp_path / "file")]
    run = subprocess.run(child, env=slowdisk.preloaded(folder), capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
    seconds, count = run.stdout.split()
    assert float(seconds) >= DELAY_MS / 1000
    assert count == "1"


def needs_a_volume(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("an ext4 image needs root")
    if absent := [tool for tool in TOOLS if not shutil.which(tool)]:
        pytest.skip(f"an ext4 image needs {', '.join(absent)}")
    if waits_once(folder / "probe"):
        pytest.skip("no image is made where one sync is enough already")


def test_a_file_system_made_for_the_run_is_removed_also_after_ctrl_c(tmp_path: Path) -> None:
    needs_a_volume(tmp_path)
    folder = tmp_path / "here"
    folder.mkdir()
    with pytest.raises(KeyboardInterrupt), place(folder, image_bytes=16 << 20) as where:
        if where.folder == where.disk:
            pytest.skip(where.note)
        assert os.path.ismount(where.folder)
        assert waits_once(where.folder / "again")
        assert where.note.startswith("ext4 on a loop device, made for this run on ")
        assert where.note.endswith(": one sync per update")
        raise KeyboardInterrupt
    assert list(folder.iterdir()) == []
    assert str(folder) not in Path("/proc/self/mounts").read_text(encoding="utf-8")


def test_without_an_image_the_figures_say_how_many_syncs_they_are_about(tmp_path: Path) -> None:
    with place(tmp_path, image_bytes=0, as_it_is=True) as where:
        assert where.folder.parent == tmp_path
        assert ("one sync" if waits_once(where.folder / "again") else "TWO syncs") in where.note
    assert list(tmp_path.iterdir()) == []


def test_the_page_has_the_aims_of_the_kept_run() -> None:
    folder = Path(aims.__file__).parent
    kept = json.loads((folder / "results" / "figures.json").read_text(encoding="utf-8"))["aims"]
    verdicts = {True: "met", False: "**missed**"}
    rows = [f"| {row['what']} | {row['aim']} | {row['measured']:.2f} | {verdicts[row['met']]} |" for row in kept]
    page = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    start = page.index(rows[0])
    assert page[start : start + len(rows) + 1] == [*rows, ""]
