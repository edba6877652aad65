"""Reads a file of a directory as a whole."""

from __future__ import annotations

import errno
import os
import stat

from .._interruption import pass_on_interruption
from ..format import (
    MAX_BYTES,
    PREVIOUS,
    Change,
    Damaged,
    Reason,
    change_in,
    current_name,
    describe_error,
    previous_name,
)
from .directory import Directory

PIECE_BYTES = 1 << 20


def read_file(directory: Directory, name: str, max_bytes: int) -> bytes:
    """All bytes of a file. Raises FileNotFoundError, or Damaged: unreadable (with errno), too large, or not a file."""
    descriptors: list[int] = []
    try:
        try:
            directory.open(descriptors, name)
            return _read_all(descriptors[0], max_bytes)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
    except OSError as error:
        if error.errno == errno.ENOENT and not descriptors:
            raise
        pass_on_interruption(error)
        if descriptors:  # it was opened, so it exists, whatever the error
            raise _unreadable(error) from error
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Damaged(Reason.NOT_A_FILE, "a link, socket or device stands in its place") from None
        raise _unreadable(error) from error


def read_changes(directory: Directory, key: str, max_bytes: int) -> tuple[Change | None, Change | None]:
    """What the two files of a key count as beside a journal, like read_change."""
    current = read_change(directory, current_name(key), key, max_bytes)
    return current, read_change(directory, previous_name(key), key, max_bytes)


def read_change(directory: Directory, name: str, key: str, max_bytes: int) -> Change | None:
    """What a file of this key counts as beside a journal; None if it is absent or not whole.

    Raises Damaged if it cannot be read: then nothing may be concluded from it.
    """
    is_previous = name.startswith(PREVIOUS)
    try:
        blob = read_file(directory, name, max(max_bytes, MAX_BYTES))
    except FileNotFoundError:
        return None
    except Damaged as damage:
        if is_previous and damage.reason is Reason.NOT_A_FILE:
            return None
        raise
    return change_in(blob, key, is_previous=is_previous)


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
    return Damaged(Reason.UNREADABLE, describe_error(error), errno=error.errno)


def _too_large(size: int, max_bytes: int) -> Damaged:
    return Damaged(Reason.TOO_LARGE, f"{size} bytes, over the limit of max_bytes={max_bytes}")
