"""Reads a file of a directory as a whole."""

from __future__ import annotations

import errno
import os
import stat
import time

from .._format.reason import Damaged, Reason, reason_of
from .directory import Directory

PIECE_BYTES = 1 << 20
LEASE_SECONDS = 0.01  # a thousand times as long as a lease is held


def read_file(directory: Directory, name: str, max_bytes: int) -> bytes:
    """All bytes of a file. Raises FileNotFoundError, or Damaged: unreadable (with errno), too large, or not a file."""
    try:
        descriptor = _open(directory, name)
    except FileNotFoundError:  # only from open: a file that was opened exists
        raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Damaged(Reason.NOT_A_FILE, "a link, socket or device stands in its place") from None
        raise _unreadable(error) from error
    try:
        try:
            return _read_all(descriptor, max_bytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unreadable(error) from error


def read_to_judge(directory: Directory, name: str, max_bytes: int) -> bytes:
    """Like read_file, but raises OSError for a file that cannot be read: such a file proves nothing."""
    try:
        return read_file(directory, name, max_bytes)
    except Damaged as damage:
        if damage.reason is not Reason.UNREADABLE:
            raise
        raise OSError(damage.errno, f"{name}: {damage.detail}") from damage


def _open(directory: Directory, name: str) -> int:
    try:
        return directory.open(name)
    except BlockingIOError:  # leased for the moment in which the owner checks whether it may overwrite the file
        time.sleep(LEASE_SECONDS)
        return directory.open(name)


def _read_all(descriptor: int, max_bytes: int) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise Damaged(Reason.NOT_A_FILE, "a directory, FIFO or device stands in its place")
    size = status.st_size
    if size > max_bytes:
        raise _too_large(size, max_bytes)
    blob = os.read(descriptor, size + 1)
    # If the length differs from the status, the read was short, or the file changes while it is read.
    while len(blob) != size and (piece := os.read(descriptor, PIECE_BYTES)):
        blob += piece
        if len(blob) > max_bytes:
            raise _too_large(len(blob), max_bytes)
    return blob


def _unreadable(error: OSError) -> Damaged:
    return Damaged(Reason.UNREADABLE, reason_of(error), errno=error.errno)


def _too_large(size: int, max_bytes: int) -> Damaged:
    return Damaged(Reason.TOO_LARGE, f"{size} bytes, over the limit of max_bytes={max_bytes}")
