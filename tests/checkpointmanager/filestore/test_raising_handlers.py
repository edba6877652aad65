"""What a signal handler raises while files are read, opened or written reaches the caller as it is.

TimeoutError is an OSError and the usual choice for SIGALRM; it must never pass for an error of the disk.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointUnreadable, CheckpointWriteFailed, FileStore
from checkpointmanager.testing import failing

from ..leases import LEASES, NEW, OLD, LeaseManager
from ..signals import locks_survive_handlers, no_collector, raised_everywhere

pytestmark = [
    locks_survive_handlers,
    pytest.mark.usefixtures("uncounted", "no_waiting_for_the_disk"),
    # What a handler raises in a finalizer, Python reports and forgets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def alarm() -> TimeoutError:
    return TimeoutError("alarm")


def write(directory: Path) -> LeaseManager:
    manager = CheckpointManager(directory, LEASES, lock_timeout=0)
    for key in ("a", "b"):
        manager.create_checkpoint(key, OLD)
        manager.create_checkpoint(key, NEW)
    return manager


def abandoned(directory: Path) -> Path:
    """A directory whose owner died, so that its journal must be read."""
    with closing(write(directory.with_name("alive"))) as manager:
        shutil.copytree(manager.path, directory, ignore=shutil.ignore_patterns(".lock"))
    shutil.rmtree(manager.path)
    return directory


READS: dict[str, Callable[[LeaseManager], object]] = {
    "load": lambda manager: manager.load(),
    "load with repair": lambda manager: manager.load(repair=True),
    "verify": lambda manager: manager.verify(),
    "get": lambda manager: manager.get_checkpoint("a"),
    "get of an absent key": lambda manager: manager.get_checkpoint("z", None),
    "previous": lambda manager: manager.previous_checkpoint("a"),
    "list": lambda manager: manager.list_checkpoints(),
    "contains": lambda manager: "a" in manager,
}


@pytest.mark.parametrize("kind", [alarm, ValueError], ids=["TimeoutError", "ValueError"])
@pytest.mark.parametrize("name", READS)
def test_a_read_lets_it_pass_at_every_place(real_directory: Path, name: str, kind: Callable[[], Exception]) -> None:
    with write(real_directory) as manager, no_collector():
        assert raised_everywhere(lambda: lambda: READS[name](manager), kind) > 10


@pytest.mark.parametrize("name", ["load", "get", "previous", "list", "contains"])
def test_a_reader_of_a_dead_owners_directory_lets_it_pass_at_every_place(real_directory: Path, name: str) -> None:
    directory = abandoned(real_directory)

    def prepare() -> Callable[[], object]:
        manager = CheckpointManager(directory, LEASES, read_only=True)
        return lambda: READS[name](manager)

    with no_collector():
        assert raised_everywhere(prepare, alarm) > 30


@pytest.mark.parametrize(
    ("state", "options"),
    [
        ("new", {}),
        ("closed", {"sharing": True}),
        ("closed", {"read_only": True}),
        ("abandoned", {}),
    ],
)
def test_opening_lets_it_pass_at_every_place(real_directory: Path, state: str, options: dict[str, Any]) -> None:
    made = real_directory.with_name("made")
    if state == "closed":
        write(made).close()
    elif state == "abandoned":
        abandoned(made)

    def prepare() -> Callable[[], object]:
        shutil.rmtree(real_directory, ignore_errors=True)
        if made.exists():
            shutil.copytree(made, real_directory)
        return lambda: FileStore(real_directory, lock_timeout=0, **options)

    with no_collector():
        assert raised_everywhere(prepare, alarm) > 30


def transaction(manager: LeaseManager) -> None:
    with manager.transaction() as changes:
        changes.create_checkpoint("a", OLD)
        changes.remove_checkpoint("b")


WRITES: dict[str, Callable[[LeaseManager], object]] = {
    "create": lambda manager: manager.create_checkpoint("new", NEW),
    "overwrite": lambda manager: manager.create_checkpoint("a", OLD),
    "update": lambda manager: manager.update_checkpoint("a", lambda _: OLD),
    "remove": lambda manager: manager.remove_checkpoint("a"),
    "transaction": transaction,
    "close": lambda manager: manager.close(),
}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in WRITES),
        *((name, {"sharing": True}) for name in ("overwrite", "transaction")),
        *((name, {"durability": "atomic"}) for name in ("remove", "transaction")),
    ],
)
def test_a_write_lets_it_pass_at_every_place(real_directory: Path, name: str, options: dict[str, Any]) -> None:
    opened: list[LeaseManager] = []

    def prepare() -> Callable[[], object]:
        while opened:
            opened.pop().close()
        shutil.rmtree(real_directory, ignore_errors=True)
        manager = CheckpointManager(real_directory, LEASES, lock_timeout=0, **options)
        for key in ("a", "b"):
            manager.create_checkpoint(key, NEW)
        opened.append(manager)
        return lambda: WRITES[name](manager)

    with no_collector():
        assert raised_everywhere(prepare, alarm) > 10


def test_a_disk_that_times_out_is_still_an_error_of_the_disk(real_directory: Path) -> None:
    timed_out = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    assert isinstance(timed_out, TimeoutError)
    with write(real_directory) as manager:
        with failing(real_directory, "read", timed_out, lasting=True), pytest.raises(CheckpointUnreadable):
            manager.get_checkpoint("a")
        with failing(real_directory, "write", timed_out), pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", OLD)
