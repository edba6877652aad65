"""A disk that is full, or loses syncs, inside a with block; all with checkpointmanager.testing."""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager
from pathlib import Path

from checkpointmanager.testing import failing


def full(directory: Path) -> AbstractContextManager[object]:
    return failing(directory, "write", errno.ENOSPC, lasting=True)


def unsynced(directory: Path, error: int | BaseException = errno.EIO) -> AbstractContextManager[object]:
    """The journal has the change, but it may not survive a power loss."""
    return failing(directory, "fdatasync", error, lasting=True)
