"""Locks that were unlinked under their holder, or that the kernel did not have."""

from __future__ import annotations

import errno
import fcntl
import os
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, DirectoryUnusable


def test_filelock_574_the_lock_file_is_never_unlinked(real_directory: Path) -> None:
    """The lock file was unlinked on release: a waiter on the old inode and the maker of a new one both had it."""
    assert int(version("filelock").split(".")[0]) >= 4
    inodes = set()
    for _ in range(20):
        with CheckpointManager(real_directory):
            inodes.add((real_directory / ".lock").stat().st_ino)
        inodes.add((real_directory / ".lock").stat().st_ino)

    assert len(inodes) == 1


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOTSUP])
def test_filelock_603_a_kernel_without_locks_is_an_error_not_a_weaker_lock(real_directory: Path, code: int) -> None:
    """Where the kernel refused the lock, the mere existence of a file silently took its place."""
    with (
        mock.patch.object(fcntl, "flock", side_effect=OSError(code, os.strerror(code))),
        pytest.raises(DirectoryUnusable) as refusal,
    ):
        CheckpointManager(real_directory)

    assert refusal.value.errno == code
