"""What each change does to the disk, call by call, seen from inside and by the kernel; and how many syncs it takes."""

from __future__ import annotations

import _thread
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import Call, watching

from ..processes import LIMIT
from ..scenarios import MODES

pytestmark = pytest.mark.usefixtures("kit_standing_by")

Manager = CheckpointManager[Any]
LOOKS = ("stat", "fstat", "read", "listdir", "flock")  # a lock is no content
SYNCS = ("fsync", "fdatasync")
ROOT = Path(__file__).parents[3]


def batch(manager: Manager) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("new", 1)
        batch.create_checkpoint("a", "changed")
        batch.remove_checkpoint("c")


def transaction(manager: Manager) -> None:
    with manager.transaction() as transaction:
        transaction.create_checkpoint("a", "changed")
        transaction.create_checkpoint("b", "changed")
        transaction.remove_checkpoint("c")
        transaction.create_checkpoint("new", 1)


CHANGES: dict[str, Callable[[Manager], object]] = {
    "create": lambda manager: manager.create_checkpoint("new", 1),
    "update": lambda manager: manager.update_checkpoint("a", lambda _: "changed"),
    "remove": lambda manager: manager.remove_checkpoint("c"),
    "batch of 3": batch,
    "transaction of 4": transaction,
}

# Each .tmp- file is T1, T2 and so on. In a change: its new files, what makes it durable, and its names.
NEW, A, B = (
    ("open T1", "write T1", "close T1"),
    ("open T2", "write T2", "close T2"),
    ("open T3", "write T3", "close T3"),
)
COMMIT = ("lseek .journal", "write .journal", "fdatasync .journal")
NAME_NEW = ("unlink .previous-new", "rename T1 new.json")
TAKE_C = ("unlink .previous-c", "unlink c.json")


def kept(key: str, new: str, link: str) -> tuple[str, ...]:
    """The old file becomes the previous generation, and the new one takes its name."""
    # A rename between two names of one file does nothing, so the link is unlinked: 2.3 us of an update's 400.
    return f"link {key}.json {link}", f"rename {link} .previous-{key}", f"unlink {link}", f"rename {new} {key}.json"


def synced(temp: str) -> tuple[str, ...]:
    return f"open {temp}", f"fsync {temp}", f"close {temp}"


NAMES = ("fsync .", "fsync .lock")  # an xfs that has shut down reports it only for a file
PUT_JOURNAL = ("open T4", "write T4", "fsync T4", "rename T4 .journal", "fsync .")
END_JOURNAL = ("open T7", "write T7", "fsync T7", "close T7", "rename T7 .journal", "fsync .", "unlink .journal")
FOUR_NAMES = (*kept("a", "T1", "T5"), *kept("b", "T2", "T6"), *TAKE_C, "unlink .previous-new", "rename T3 new.json")
SETTLE = ("fsync a.json", "fsync b.json", "fsync new.json", "fsync .")
TRANSACTION = (*NEW, *A, *B, *PUT_JOURNAL, *FOUR_NAMES, *SETTLE, *END_JOURNAL, "close T4")

EXPECTED: dict[tuple[str, str], tuple[str, ...]] = {
    ("owner", "create"): (*NEW, *COMMIT, *NAME_NEW),
    ("owner", "update"): (*NEW, *COMMIT, *kept("a", "T1", "T2")),
    ("owner", "remove"): (*COMMIT, *TAKE_C),
    ("owner", "batch of 3"): (*NEW, *A, *COMMIT, *NAME_NEW, *kept("a", "T2", "T3"), *TAKE_C),
    ("owner", "transaction of 4"): (
        *(*NEW, *A, *B, *COMMIT),
        *(*kept("a", "T1", "T4"), *kept("b", "T2", "T5"), *TAKE_C, "unlink .previous-new", "rename T3 new.json"),
    ),
    ("sharer", "create"): (*NEW, *synced("T1"), *NAME_NEW, *NAMES),
    ("sharer", "update"): (*NEW, *synced("T1"), *kept("a", "T1", "T2"), *NAMES),
    ("sharer", "remove"): (*TAKE_C, *NAMES),
    ("sharer", "batch of 3"): (
        *(*NEW, *A, *synced("T1"), *synced("T2")),
        *(*NAME_NEW, *kept("a", "T2", "T3"), *TAKE_C, *NAMES),
    ),
    ("sharer", "transaction of 4"): TRANSACTION,
    ("atomic", "create"): (*NEW, *synced("T1"), *NAME_NEW),
    ("atomic", "update"): (*NEW, *synced("T1"), *kept("a", "T1", "T2")),
    ("atomic", "remove"): TAKE_C,
    ("atomic", "batch of 3"): (*NEW, *A, *synced("T1"), *synced("T2"), *NAME_NEW, *kept("a", "T2", "T3"), *TAKE_C),
    ("atomic", "transaction of 4"): TRANSACTION,
}


@pytest.fixture(autouse=True)
def _one_sync_after_another() -> Iterator[None]:
    """Several files are synced side by side, in no order. Without helper threads the order is certain."""
    with mock.patch.object(_thread, "start_new_thread", side_effect=RuntimeError("can't start new thread")):
        yield


def filled(directory: Path, **options: Any) -> Manager:
    manager: Manager = CheckpointManager(directory, **options)
    for key in "abc":
        manager.create_checkpoint(key, "first")
        manager.create_checkpoint(key, "second")
    return manager


def told(calls: Iterable[Call]) -> list[str]:
    """What changes the disk or makes it durable, with short names for temp files. Looking changes nothing."""
    short: dict[str, str] = {}
    found = []
    for call in calls:
        words = [short.setdefault(w, f"T{len(short) + 1}") if w.startswith(".tmp-") else w for w in call.about.split()]
        if call.name not in LOOKS and not (call.name in ("open", "close") and not words[0].startswith("T")):
            found.append(" ".join((call.name, *words)))
    return found


@pytest.mark.parametrize(("mode", "name"), EXPECTED)
def test_each_change_makes_exactly_these_calls(real_directory: Path, mode: str, name: str) -> None:
    with filled(real_directory, **MODES[mode]) as manager, watching(real_directory) as calls:
        CHANGES[name](manager)
        made = told(calls)
    assert made == list(EXPECTED[mode, name])


def test_syncs_per_change() -> None:
    """One for a change of an owner, whatever it is. Counted from the lists above."""
    counted = {of: sum(call.startswith(SYNCS) for call in calls) for of, calls in EXPECTED.items()}
    assert [counted["owner", name] for name in CHANGES] == [1, 1, 1, 1, 1]
    assert [counted["sharer", name] for name in CHANGES] == [3, 3, 2, 4, 8]
    assert [counted["atomic", name] for name in CHANGES] == [1, 1, 0, 2, 8]


def test_the_first_change_of_an_owner_makes_the_journal_and_its_close_ends_it(real_directory: Path) -> None:
    filled(real_directory).close()
    with CheckpointManager[Any](real_directory) as manager, watching(real_directory) as calls:
        manager.remove_checkpoint("c")
        made = told(calls)
        del calls[:]
        manager.close()
        ended = told(calls)
    journal = ("open T1", "write T1", "write T1", "fsync T1", "rename T1 .journal", "fsync .")
    assert made == [*journal, "lseek T1", "write T1", "fdatasync T1", *TAKE_C]
    end = ("open T1", "write T1", "fsync T1", "close T1", "rename T1 .journal", "fsync .", "unlink .journal")
    assert [call for call in ended if not call.startswith("close T") or call in end] == ["fsync .", *end]


def test_an_unchanged_value_costs_a_look_at_the_lock_and_a_read(real_directory: Path) -> None:
    with filled(real_directory) as manager, watching(real_directory) as calls:
        assert manager.create_checkpoint("a", "second").unchanged
        names = [call.name for call in calls]
    assert names == ["stat", "open", "fstat", "read", "close"]


def test_a_read_is_four_calls(real_directory: Path) -> None:
    with filled(real_directory) as manager, watching(real_directory) as calls:
        manager.get_checkpoint("a")
        names = [call.name for call in calls]
    assert names == ["open", "fstat", "read", "close"]


PROGRAM = """
import os, sys
from tests.checkpointmanager.filestore.test_steady_state import CHANGES, filled
with filled(sys.argv[1]) as manager:
    for change in [*CHANGES.values()] * 2:  # the first time all modules are loaded
        filled_again = [manager.create_checkpoint(key, value) for key in "abc" for value in ("first", "second")]
        manager.remove_checkpoint("new")
        os.access("begin", 0)
        change(manager)
        os.access("end", 0)
"""
KERNEL = {"openat": "open", "linkat": "link", "renameat": "rename", "renameat2": "rename", "unlinkat": "unlink"}
CHANGING = "openat,write,close,lseek,fsync,fdatasync,/^link,/^rename,/^unlink,/^access,/^faccessat"


def kernel_calls(trace: Path, directory: Path) -> Iterator[list[str]]:
    """The names of the changing calls between each pair of marks; opens only of new files, closes only of those."""
    calls: list[str] = []
    for line in trace.read_text().splitlines():
        if '"begin"' in line:
            calls = []
        elif '"end"' in line:
            yield [*calls]
        elif (found := re.match(r"\d+ +(\w+)\((.*)", line)) and str(directory) in line:
            name = KERNEL.get(found[1], found[1])
            if name not in ("open", "close") or ".tmp-" in found[2]:
                calls.append(name)


def test_the_kernel_sees_the_same_calls_of_an_owner(real_directory: Path, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    traced = [strace, "-f", "-y", "-o", str(trace), f"--trace={CHANGING}", sys.executable, "-c", PROGRAM]
    run = subprocess.run(
        [*traced, str(real_directory)], capture_output=True, text=True, check=False, timeout=LIMIT, cwd=ROOT
    )
    if "ptrace" in run.stderr.lower():
        pytest.skip(f"strace is not permitted here: {run.stderr.strip()[:100]}")
    assert run.returncode == 0, run.stderr
    seen = list(kernel_calls(trace, real_directory))[len(CHANGES) :]
    assert seen == [[call.split()[0] for call in EXPECTED["owner", name]] for name in CHANGES]
