"""The benchmark measures what it says: its figures, its aims, its counts of syncs and the file system it makes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import aims, flushes, own, report, workloads
from bench.claims import claim, key_of
from bench.contenders import Contender, everybody
from bench.volume import missing, place

CONTENDERS = ["checkpointmanager", "floor", "sqlite3", "kubelet's way"]
DELAY_MS = 40
needs_cc = pytest.mark.skipif(not shutil.which("cc"), reason="the slow disk needs a C compiler called cc")


def test_a_quick_run_has_all_figures_and_verdicts(tmp_path: Path) -> None:
    """One test, because the run takes a while."""
    folder = tmp_path / "bench run"
    folder.mkdir()
    # In memory where possible: a test is no measurement, and a busy disk would take minutes.
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(folder)
    command = [sys.executable, "-m", "bench", "--quick", "--directory", where, "--output", str(folder / "results")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert [entry.name for entry in folder.iterdir()] == ["results"]
    figures = json.loads((folder / "results" / "figures.json").read_text(encoding="utf-8"))
    assert run.stdout.rstrip() == (folder / "results" / "report.md").read_text(encoding="utf-8").rstrip()
    check_every_workload_has_figures_of_every_contender(figures)
    check_the_report_says_of_each_aim_whether_it_was_met(run.stdout, figures)
    check_a_comparison_is_between_ratios_to_the_floor(figures)
    if shutil.which("cc"):
        check_syncs_are_counted_as_they_are_made(figures)


@pytest.fixture(params=everybody(), ids=CONTENDERS)
def contender(request: pytest.FixtureRequest, tmp_path: Path) -> Contender:
    opened: Contender = request.param
    opened.open(tmp_path)
    return opened


def check_every_workload_has_figures_of_every_contender(figures: dict[str, Any]) -> None:
    threads = ("1 thread", "4 threads", "16 threads")
    works = ("life of a claim", "transaction of 4", "hot update")
    wanted = {f"{work}, {who}" for work in works for who in threads}
    wanted |= {
        "wide update, 1 thread",
        "update, 10 present",
        "update, 1000 present",
        "batch of 100",
        "restart, 1000 claims",
    }
    if shutil.which("cc"):
        wanted.add("slow disk, life of a claim")
    assert set(figures["comparisons"]) == wanted
    for title, rows in figures["comparisons"].items():
        assert list(rows) == CONTENDERS, title
        for row in rows.values():
            assert set(row) == {"median_us", "p99_us", "longest_us", "per_second", "calls"}
            assert all(value > 0 for value in row.values())
    assert set(figures["durable"]) == set(figures["settings"]) == set(CONTENDERS)


def check_the_report_says_of_each_aim_whether_it_was_met(printed: str, figures: dict[str, Any]) -> None:
    assert [row["what"] for row in figures["aims"]] == [aim.what for aim in aims.AIMS]
    assert [row["what"] for row in figures["aims"] if row["met"] is None and "10,000" not in row["what"]] == []
    for row in figures["aims"]:
        line = next(line for line in printed.splitlines() if line.startswith(f"| {row['what']} "))
        assert line.rstrip(" |").endswith(f"| {report.VERDICTS[row['met']]}")


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


def test_the_page_has_all_aims() -> None:
    page = (Path(aims.__file__).parent / "README.md").read_text(encoding="utf-8")
    rows = [f"| {aim.what} | {aim} |" for aim in aims.AIMS]
    assert "\n".join(["|---|---|", *rows, ""]) in page


def check_a_comparison_is_between_ratios_to_the_floor(figures: dict[str, Any]) -> None:
    rows = figures["comparisons"]["batch of 100"]
    twice = {name: {**row, "per_second": 2 * row["per_second"]} for name, row in rows.items()}
    faster = {**rows, "sqlite3": twice["sqlite3"]}
    for new, sqlite3, ours in ((twice, "+0%", "+0%"), (faster, "+100%", "+0%")):
        shown = report.comparison({"comparisons": {"a": rows}}, {"comparisons": {"a": new}})
        changes = {line.split("|")[2].strip(): line.split("|")[5].strip() for line in shown.splitlines()[2:]}
        assert (changes["sqlite3"], changes["checkpointmanager"]) == (sqlite3, ours)


def test_every_contender_has_what_was_written_after_a_restart(contender: Contender, tmp_path: Path) -> None:
    contender.fill([claim(number) for number in range(5)])
    contender.update(claim(5))
    contender.update_many([claim(6), claim(7)])
    contender.update_together([claim(8), claim(9)])
    contender.remove(key_of(5))
    contender.close()

    contender.open(tmp_path)
    assert len(contender.load()) == 9
    contender.close()


def test_no_two_threads_have_the_same_keys() -> None:
    numbers = workloads.own_numbers(threads=4, each=16, calls=1000, seed=1)
    shares = [set(numbers[thread::4]) for thread in range(4)]
    assert len(set().union(*shares)) == sum(len(share) for share in shares) == 64


def check_syncs_are_counted_as_they_are_made(figures: dict[str, Any]) -> None:
    counted = figures["syncs per change"]
    assert counted["floor"] == {"life of a claim": 1.75, "hot update": 2, "create": 2, "transaction of 4": 8}
    assert set(counted["kubelet's way"].values()) == {1}
    assert 1 < counted["checkpointmanager"]["life of a claim"] < 1.75, "fewer than the floor"


@needs_cc
@pytest.mark.parametrize("call", ["os.fsync(file)", "os.fdatasync(file)"])
def test_a_flush_of_a_child_is_counted_and_not_shorter_than_its_delay(call: str, tmp_path: Path) -> None:
    program = f"""
import os, sys, time
from bench.flushes import flushes, slow_flushes
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(file, b"x")
assert flushes() == 0
with slow_flushes({DELAY_MS}):
    started = time.perf_counter()
    {call}
    print(time.perf_counter() - started, flushes())
"""
    folder = tmp_path / "with a space"
    folder.mkdir()

    child = [sys.executable, "-c", program, str(tmp_path / "file")]
    run = subprocess.run(child, env=flushes.preloaded(folder), capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
    seconds, count = run.stdout.split()
    assert float(seconds) >= DELAY_MS / 1000
    assert count == "1"


def test_only_calls_of_the_library_are_counted(tmp_path: Path) -> None:
    counted = own.python_calls(tmp_path)
    assert counted["transaction of 3, calls"] > counted["create, calls"] > counted["get, calls"] > 0
    assert own._profiled(lambda: shutil.which("cc")) == {"calls": 0, "files": 0}


def test_a_file_system_made_for_the_run_is_removed_also_after_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := missing():
        pytest.skip(reason)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), place(None, image_bytes=16 << 20) as where:
        if "could be made" in where.note:
            pytest.skip(where.note)
        assert os.path.ismount(where.folder)
        assert where.note.startswith("ext4 with a journal on a loop device")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text(encoding="utf-8")


def test_a_directory_that_is_named_is_measured_as_it_is(tmp_path: Path) -> None:
    with place(tmp_path, image_bytes=0) as where:
        assert where.folder.parent == tmp_path
        assert "as it is (as asked for)" in where.note
    assert list(tmp_path.iterdir()) == []
