"""The exact system calls of a durable write of a known key, seen from inside and from outside."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import watching

from .. import spares
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager

# As commit.py and spares.py describe them.
CLASSIC = ["stat", "open", "write", "fsync", "close", "link", "rename", "rename", "fsync"]
GROWING = ["stat", "open", "write", "fsync", "close", "exchange", "exchange", "rename", "fsync"]
OVER_A_SPARE = ["stat", "open", "fstat", *["fcntl"] * 3, "write", "fdatasync", "close", "exchange", "exchange"]
READ = ["open", "fstat", "read", "close"]


@pytest.fixture
def manager(real_directory: Path) -> Iterator[LeaseManager]:
    """Key "a" is known, and so is whether files can be recycled here."""
    with CheckpointManager(real_directory, LEASES) as manager:
        for lease in (OLD, NEW, OLD, NEW, OLD):
            manager.create_checkpoint("a", lease)
        yield manager


@pytest.fixture
def spared(spare_directory: Path) -> Iterator[LeaseManager]:
    """The same with two free spares."""
    with CheckpointManager(spare_directory, LEASES) as manager:
        for lease in (OLD, NEW, OLD, NEW, OLD):
            manager.create_checkpoint("a", lease)
        assert spares.free_in(manager) == 2
        yield manager


def test_a_write_of_a_known_key(manager: LeaseManager, real_directory: Path) -> None:
    with watching(real_directory) as calls:
        manager.create_checkpoint("a", NEW)

    assert [call.name for call in calls] == CLASSIC
    temp, kept = calls[1].about, calls[5].about.removeprefix("a.json ")
    assert calls[0].about == ".lock"
    assert {call.about for call in calls[2:5]} == {temp}
    assert calls[6].about == f"{kept} .previous-a"
    assert calls[7].about == f"{temp} a.json"


def test_a_write_of_a_known_key_over_a_spare(spared: LeaseManager, spare_directory: Path) -> None:
    with watching(spare_directory) as calls:
        spared.create_checkpoint("a", NEW)

    assert [call.name for call in calls] == OVER_A_SPARE
    spare = calls[1].about
    assert calls[0].about == ".lock"
    assert spare.startswith(".spare-")
    assert {call.about for call in calls[2:9]} == {spare}
    assert calls[9].about == f"{spare} a.json"
    assert calls[10].about == f"{spare} .previous-a"


def test_a_transaction_before_it_adds_nothing(spared: LeaseManager, spare_directory: Path) -> None:
    for lease in (NEW, OLD):
        with spared.transaction() as transaction:
            transaction.create_checkpoint("a", lease)
            transaction.create_checkpoint("b", lease)
    with watching(spare_directory) as calls:
        spared.create_checkpoint("a", NEW)

    assert [call.name for call in calls] == OVER_A_SPARE


def test_a_write_of_a_known_key_where_no_spare_is_free(spared: LeaseManager, spare_directory: Path) -> None:
    for lease in (NEW, OLD):
        spared.create_checkpoint("a", lease)
    with watching(spare_directory) as calls:
        spared.create_checkpoint("a", NEW)

    assert [call.name for call in calls] == GROWING
    temp = calls[1].about
    assert [call.about for call in calls[5:8]] == [f"{temp} a.json", f"{temp} .previous-a", f"{temp} {spare_of(temp)}"]


def spare_of(temp: str) -> str:
    return temp.replace(".tmp-", ".spare-")


def test_a_shorter_value_costs_one_call_more(spared: LeaseManager, spare_directory: Path) -> None:
    """The rest of the longer value is cut off after the write and before the sync."""
    spared.create_checkpoint("a", Lease("long" * 300))
    for lease in (NEW, OLD, NEW, OLD):
        with watching(spare_directory) as calls:
            spared.create_checkpoint("a", lease)
        if "truncate" in [call.name for call in calls]:
            break
    assert [call.name for call in calls] == [*OVER_A_SPARE[:7], "truncate", *OVER_A_SPARE[7:]]


def test_the_first_write_of_a_key_by_its_owner_learns_what_the_file_holds(real_directory: Path) -> None:
    for lease in (OLD, NEW):
        with CheckpointManager(real_directory, LEASES) as manager, watching(real_directory) as calls:
            manager.create_checkpoint("a", lease)
    # A dead writer may have left both names on one file; then the last rename leaves a name to remove.
    assert [call.name for call in calls] == ["stat", *READ, *CLASSIC[1:], "unlink"]


def test_an_update_reads_first(spared: LeaseManager, spare_directory: Path) -> None:
    with watching(spare_directory) as calls:
        spared.update_checkpoint("a", lambda _: NEW)
    assert [call.name for call in calls] == ["stat", *READ, *OVER_A_SPARE[1:]]


def test_an_update_the_classic_way_reads_first(manager: LeaseManager, real_directory: Path) -> None:
    with watching(real_directory) as calls:
        manager.update_checkpoint("a", lambda _: NEW)
    assert [call.name for call in calls] == ["stat", *READ, *CLASSIC[1:]]


def test_an_unchanged_value_is_read_once_and_then_costs_a_look_at_the_lock_and_one_at_the_file(
    manager: LeaseManager, real_directory: Path
) -> None:
    for expected in (["stat", "stat", *READ], ["stat", "stat"]):
        with watching(real_directory) as calls:
            assert manager.create_checkpoint("a", OLD).unchanged
        assert [call.name for call in calls] == expected


def test_a_read_is_four_calls(manager: LeaseManager, real_directory: Path) -> None:
    with watching(real_directory) as calls:
        manager.get_checkpoint("a")
    assert [call.name for call in calls] == READ


def test_a_removal_of_a_known_key(manager: LeaseManager, real_directory: Path) -> None:
    with watching(real_directory) as calls:
        manager.remove_checkpoint("a")
    assert [call.name for call in calls] == ["stat", "rename", "rename", "fsync", "unlink", "unlink"]


PROGRAM = """
import os, sys
from checkpointmanager import CheckpointManager
with CheckpointManager(sys.argv[1]) as manager:
    manager._store._spares.works = sys.argv[2] == "spares"
    for n in range(5):
        manager.create_checkpoint("a", n)
    os.access("begin", 0)
    manager.create_checkpoint("a", 5)
    os.access("end", 0)
"""
# Memory and scheduling are Python's own business.
INTERNAL = {"mmap", "munmap", "brk", "futex", "mremap", "madvise", "clock_gettime", "gettimeofday", "getrandom"}
SAME = {
    "newfstatat": "stat",
    "openat": "open",
    "linkat": "link",
    "renameat": "rename",
    "renameat2": "exchange",
}


@pytest.mark.parametrize(("way", "expected"), [("classic", CLASSIC), ("spares", OVER_A_SPARE)])
def test_the_kernel_sees_the_same(real_directory: Path, tmp_path: Path, way: str, expected: list[str]) -> None:
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("strace is not installed")
    if way == "spares" and not spares.is_possible_in(tmp_path):
        pytest.skip("this file system has no leases, or cannot exchange names")
    trace = tmp_path / "trace"
    command = [strace, "-f", "-o", str(trace), sys.executable, "-c", PROGRAM, str(real_directory), way]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if "PTRACE" in run.stderr or "ptrace" in run.stderr:
        pytest.skip(f"strace is not permitted here: {run.stderr.strip()[:100]}")
    assert run.returncode == 0, run.stderr

    lines = trace.read_text().splitlines()
    begin, end = (next(n for n, line in enumerate(lines) if f'"{mark}"' in line) for mark in ("begin", "end"))
    calls = [(found[1], line) for line in lines[begin + 1 : end] if (found := re.match(r"\d+ +(\w+)\(", line))]
    assert [_as_python_calls_it(*call) for call in calls if call[0] not in INTERNAL] == expected


def _as_python_calls_it(call: str, line: str) -> str:
    if call == "newfstatat" and "AT_EMPTY_PATH" in line:
        return "fstat"
    if call == "renameat2" and "RENAME_EXCHANGE" not in line:
        return "rename"
    return SAME.get(call, call)
