"""The exact system calls of a durable write of a known key, seen from inside and from outside."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager

from .faults import injected, recorded
from .leases import LEASES, NEW, OLD, LeaseManager

STEADY = ["stat", "open", "write", "fsync", "close", "link", "rename", "rename", "fsync"]


@pytest.fixture
def manager(real_directory: Path) -> LeaseManager:
    manager = CheckpointManager(real_directory, LEASES)
    manager.create_checkpoint("a", OLD)
    return manager


def test_a_write_of_a_known_key(manager: LeaseManager) -> None:
    with manager, injected(recorded()) as record:
        manager.create_checkpoint("a", NEW)
        calls = list(record.calls)

    assert [call.name for call in calls] == STEADY
    temp, kept = calls[1].about, calls[5].about.removeprefix("a.json->")
    assert calls[0].about == ".lock"
    assert calls[2].about == calls[3].about == calls[4].about, "one descriptor"
    assert calls[6].about == f"{kept}->.previous-a"
    assert calls[7].about == f"{temp}->a.json"


def test_an_update_reads_first(manager: LeaseManager) -> None:
    with manager, injected(recorded()) as record:
        manager.update_checkpoint("a", lambda _: NEW)
        assert [call.name for call in record.calls] == ["stat", "open", "fstat", "read", "close", *STEADY[1:]]


def test_an_unchanged_value_costs_the_look_at_the_lock_alone(manager: LeaseManager) -> None:
    with manager, injected(recorded()) as record:
        manager.create_checkpoint("a", OLD)
        assert [call.name for call in record.calls] == ["stat"]


def test_a_read_is_four_calls(manager: LeaseManager) -> None:
    with manager, injected(recorded()) as record:
        manager.get_checkpoint("a")
        assert [call.name for call in record.calls] == ["open", "fstat", "read", "close"]


def test_a_removal_of_a_known_key(manager: LeaseManager) -> None:
    with manager, injected(recorded()) as record:
        manager.remove_checkpoint("a")
        assert [call.name for call in record.calls] == ["stat", "unlink", "unlink", "fsync"]


PROGRAM = """
import os, sys
from checkpointmanager import CheckpointManager
with CheckpointManager(sys.argv[1]) as manager:
    for n in range(3):
        manager.create_checkpoint("a", n)
    os.access("begin", 0)
    manager.create_checkpoint("a", 3)
    os.access("end", 0)
"""
# Memory and scheduling are Python's own business.
INTERNAL = {"mmap", "munmap", "brk", "futex", "mremap", "madvise", "clock_gettime", "gettimeofday", "getrandom"}
SAME = {"newfstatat": "stat", "openat": "open", "linkat": "link", "renameat": "rename", "renameat2": "rename"}


def test_the_kernel_sees_the_same(real_directory: Path, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    command = [strace, "-f", "-o", str(trace), sys.executable, "-c", PROGRAM, str(real_directory)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if "PTRACE" in run.stderr or "ptrace" in run.stderr:
        pytest.skip(f"strace is not permitted here: {run.stderr.strip()[:100]}")
    assert run.returncode == 0, run.stderr

    lines = trace.read_text().splitlines()
    begin, end = (next(n for n, line in enumerate(lines) if f'"{mark}"' in line) for mark in ("begin", "end"))
    calls = [found[1] for line in lines[begin + 1 : end] if (found := re.match(r"\d+ +(\w+)\(", line))]
    assert [SAME.get(call, call) for call in calls if call not in INTERNAL] == STEADY
