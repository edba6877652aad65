"""The exact system calls of a durable write of a known key, seen from inside and from outside."""

from __future__ import annotations

import errno
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import failing, watching

from .. import recycling
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager

# As commit.py and recycle.py describe them.
CLASSIC = ["stat", "open", "write", "fsync", "close", "link", "rename", "rename", "fsync"]
RECYCLED = ["stat", "open", "fstat", *["fcntl"] * 3, "write", "fsync", "close", "exchange", "fsync"]
READ = ["open", "fstat", "read", "close"]


@pytest.fixture
def manager(real_directory: Path) -> Iterator[LeaseManager]:
    """Key "a" is known, and so is whether files can be recycled here."""
    with CheckpointManager(real_directory, LEASES) as manager:
        for lease in (OLD, NEW, OLD, NEW, OLD):
            manager.create_checkpoint("a", lease)
        yield manager


@pytest.fixture
def classic(manager: LeaseManager, real_directory: Path) -> LeaseManager:
    """A manager that has found out that this system cannot exchange names."""
    with failing(real_directory, "exchange", errno.EINVAL):
        manager.create_checkpoint("a", Lease("x"))
    manager.create_checkpoint("a", OLD)
    return manager


@pytest.fixture
def recycled(recyclable_directory: Path, manager: LeaseManager) -> LeaseManager:
    return manager


def test_a_write_of_a_known_key(classic: LeaseManager, real_directory: Path) -> None:
    with watching(real_directory) as calls:
        classic.create_checkpoint("a", NEW)

    assert [call.name for call in calls] == CLASSIC
    temp, kept = calls[1].about, calls[5].about.removeprefix("a.json ")
    assert calls[0].about == ".lock"
    assert {call.about for call in calls[2:5]} == {temp}
    assert calls[6].about == f"{kept} .previous-a"
    assert calls[7].about == f"{temp} a.json"


def test_a_write_of_a_known_key_into_the_previous_file(recycled: LeaseManager, real_directory: Path) -> None:
    with watching(real_directory) as calls:
        recycled.create_checkpoint("a", NEW)

    assert [call.name for call in calls] == RECYCLED
    assert calls[0].about == ".lock"
    assert calls[1].about == ".previous-a"
    assert {call.about for call in calls[2:9]} == {".previous-a"}
    assert calls[9].about == ".previous-a a.json"


def test_a_shorter_value_costs_one_call_more(recycled: LeaseManager, real_directory: Path) -> None:
    """What was longer is cut off after the write, and before the sync."""
    for lease in (Lease("long" * 100), Lease("long" * 99)):
        recycled.create_checkpoint("a", lease)
    with watching(real_directory) as calls:
        recycled.create_checkpoint("a", NEW)
    assert [call.name for call in calls] == [*RECYCLED[:7], "truncate", *RECYCLED[7:]]


def test_the_first_write_of_a_key_by_its_owner_learns_what_is_there(real_directory: Path) -> None:
    for lease in (OLD, NEW):
        with CheckpointManager(real_directory, LEASES) as manager, watching(real_directory) as calls:
            manager.create_checkpoint("a", lease)
    # A dead writer may have left both names on one file; then the last rename leaves a name that is to be removed.
    assert [call.name for call in calls] == ["stat", *READ, *CLASSIC[1:], "unlink"]


def test_an_update_reads_first(recycled: LeaseManager, real_directory: Path) -> None:
    with watching(real_directory) as calls:
        recycled.update_checkpoint("a", lambda _: NEW)
    assert [call.name for call in calls] == ["stat", *READ, *RECYCLED[1:]]


def test_an_update_where_nothing_can_be_recycled_reads_first(classic: LeaseManager, real_directory: Path) -> None:
    with watching(real_directory) as calls:
        classic.update_checkpoint("a", lambda _: NEW)
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
    if sys.argv[2] == "classic":
        manager._store._recycler._works = False
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


@pytest.mark.parametrize(("way", "expected"), [("classic", CLASSIC), ("recycled", RECYCLED)])
def test_the_kernel_sees_the_same(real_directory: Path, tmp_path: Path, way: str, expected: list[str]) -> None:
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("strace is not installed")
    if way == "recycled" and not recycling.is_possible_in(tmp_path):
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
