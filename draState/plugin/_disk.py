"""Notices that claims cannot be written before a pod has to wait for it: a full or read-only file system."""

from __future__ import annotations

import errno
import os

ROOM = 16 << 10  # bytes: a claim, its next generation, and what the file system needs for them
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS)  # no files without a name here


def problem(directory: str) -> str:
    """Why nothing can be written to a directory, or "". Reserves space for a file without a name; writes nothing."""
    try:
        descriptor = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, ROOM)
        finally:
            os.close(descriptor)
    except OSError as error:
        return "" if error.errno in _UNSUPPORTED else f"{directory}: claims cannot be written: {error.strerror}"
    return ""
