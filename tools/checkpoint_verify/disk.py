"""All reads from the disk: they never follow a link, wait for a FIFO or open a device.

A file of any size needs little memory: large ones pass through one buffer into the hash.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from xxhash import xxh3_64

from checkpointmanager._format.envelope import CHECKSUM_BYTES, MAX_BYTES, stated_digest

WHOLE_BYTES = 1 << 20  # files up to this size are read in one piece, and parsed
STREAM_BYTES = 16 << 30  # larger files are not read at all: a sparse file may have any size
PIECE_BYTES = 1 << 20

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC

_buffer = bytearray(PIECE_BYTES)


class NotAFile(Exception):
    """The name belongs to something other than a regular file."""


class Look(NamedTuple):
    """A file's bytes; for a large file only the head, and whether its checksum holds."""

    status: os.stat_result
    head: bytes
    streamed: bool = False
    checksum_matches: bool = False  # set only for streamed files


def open_folder(path: str, below: int | None = None) -> int:
    """Open a directory. One that the user names may be a link; one found below it may not."""
    return os.open(path, _FOLDER if below is None else _FOLDER | os.O_NOFOLLOW, dir_fd=below)


def look(name: str, folder: int | None, device: int | None = None) -> Look:
    """Read `name` in the open folder (or by path). Raises NotAFile or OSError.

    With `device`, a file on another file system is refused.
    """
    try:
        descriptor = _open(name, folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotAFile("a link or a socket" if error.errno == errno.ELOOP else "a socket or a device") from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotAFile(what_is(status.st_mode))
        if device is not None and status.st_dev != device:
            raise OSError(errno.EXDEV, "is on a different file system from its directory; give its path to check it")
        if status.st_size <= WHOLE_BYTES:
            return Look(status, _read(descriptor, status.st_size))
        return _stream(descriptor, status)
    finally:
        os.close(descriptor)


def read_whole(name: str, folder: int | None) -> bytes:
    """All bytes of a file, up to the limit of the library."""
    descriptor = _open(name, folder)
    try:
        size = os.fstat(descriptor).st_size
        return _read(descriptor, min(size, MAX_BYTES))
    finally:
        os.close(descriptor)


def pieces(path: str) -> Iterator[bytes]:
    """A file of any size, piece by piece."""
    descriptor = _open(path, None)
    try:
        while piece := os.read(descriptor, PIECE_BYTES):
            yield piece
    finally:
        os.close(descriptor)


def what_is(mode: int) -> str:
    kinds = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((words for test, words in kinds if test(mode)), "a device")


def _open(name: str, folder: int | None) -> int:
    return os.open(name, _FILE, dir_fd=folder)


def _read(descriptor: int, size: int) -> bytes:
    blob = os.read(descriptor, size + 1)
    # If the length differs from the status, the read was short, or the file is changing.
    while len(blob) != size and len(blob) <= MAX_BYTES and (piece := os.read(descriptor, PIECE_BYTES)):
        blob += piece
    return blob


def _stream(descriptor: int, status: os.stat_result) -> Look:
    head = os.read(descriptor, PIECE_BYTES)
    wanted = stated_digest(head)
    if wanted is None or status.st_size > STREAM_BYTES:
        return Look(status, head, streamed=True)
    digest = xxh3_64(memoryview(head)[CHECKSUM_BYTES:])
    window = memoryview(_buffer)
    last = head[-2:]
    while got := os.readv(descriptor, [_buffer]):
        digest.update(window[:got])
        last = (last + bytes(window[max(0, got - 2) : got]))[-2:]
    return Look(status, head, streamed=True, checksum_matches=digest.intdigest() == wanted and last == b"}\n")
