"""The disk fails or `.lock` is replaced while the lock is taken: no process owns by mistake, and nothing gets stuck."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, DirectoryLocked


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "claims"


@pytest.mark.parametrize("call", ["truncate", "write"])
def test_a_lock_file_that_cannot_be_written_locks_all_the_same(directory: Path, call: str) -> None:
    with mock.patch.object(os, call, side_effect=OSError(errno.ENOSPC, "full")):
        manager = CheckpointManager(directory)

    with manager, pytest.raises(DirectoryLocked, match=r"locked by another manager in this process$"):
        CheckpointManager(directory)


@contextmanager
def replaced_while_taken(directory: Path) -> Iterator[None]:
    """As soon as the kernel has granted the lock, `.lock` is another file."""
    flock = fcntl.flock

    def replace(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if operation & fcntl.LOCK_EX:
            (directory / ".lock").rename(directory / ".away")
            (directory / ".lock").touch()

    with mock.patch.object(fcntl, "flock", replace):
        yield


def test_a_lock_file_that_was_replaced_while_it_was_taken_makes_no_owner(directory: Path) -> None:
    CheckpointManager(directory).close()
    with replaced_while_taken(directory), pytest.raises(DirectoryLocked, match=r"replaced while .* try again"):
        CheckpointManager(directory)
    CheckpointManager(directory).close()


def test_a_sharer_whose_lock_file_was_replaced_while_it_was_taken_can_try_again(directory: Path) -> None:
    with CheckpointManager(directory, sharing=True) as manager:
        with replaced_while_taken(directory), pytest.raises(DirectoryLocked, match=r"replaced while .* try again"):
            manager.create_checkpoint("claim", 1)
        assert manager.create_checkpoint("claim", 1).generation == 1


LEFT_OPEN_UNDER_PYFAKEFS = """
import gc, os
from pyfakefs.fake_filesystem_unittest import Patcher
from checkpointmanager import CheckpointManager

with Patcher():
    manager = CheckpointManager("/claims")
real = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]
del manager
gc.collect()
for descriptor in real:
    os.fstat(descriptor)
"""


def test_a_lock_that_a_test_leaves_open_closes_no_real_descriptor() -> None:
    """In a process of its own: here a closed descriptor could belong to any part of the test run."""
    subprocess.run([sys.executable, "-c", LEFT_OPEN_UNDER_PYFAKEFS], check=True, timeout=60)


def test_the_library_of_locks_is_not_imported_before_a_lock_is_taken() -> None:
    code = "import sys, checkpointmanager, checkpointmanager.format; sys.exit('filelock' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
