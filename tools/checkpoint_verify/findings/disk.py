"""All reads from the disk: they never follow a link, wait for a FIFO, open a device or touch a mount that may be dead.

A file of any size needs little memory: large ones pass through one buffer into the hash.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from xxhash import xxh3_64

from checkpointmanager.format import CHECKSUM_BYTES, MAX_BYTES, stated_digest

WHOLE_BYTES = 1 << 20  # files up to this size are read in one piece, and parsed
STREAM_BYTES = 16 << 30  # larger files are not read at all: a sparse file may have any size
PIECE_BYTES = 1 << 20

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
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


def look(name: str, folder: int | None, device: int | None = None, whole: int = WHOLE_BYTES) -> Look:
    """Read `name` in the open folder (or by path). Raises NotAFile or OSError.

    With `device`, a file on another file system is refused. Up to `whole` bytes are read in one piece.
    """
    try:
        descriptor = os.open(name, FILE, dir_fd=folder)
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
        if status.st_size <= whole:
            return Look(status, _read(descriptor, status.st_size))
        return _stream(descriptor, status)
    finally:
        os.close(descriptor)


def pieces(path: str) -> Iterator[bytes]:
    """A file of any size, piece by piece."""
    descriptor = os.open(path, FILE)
    try:
        yield from pieces_of(descriptor)
    finally:
        os.close(descriptor)


def pieces_of(descriptor: int) -> Iterator[bytes]:
    """The rest of an open file."""
    while piece := os.read(descriptor, PIECE_BYTES):
        yield piece


def what_is(mode: int) -> str:
    kinds = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((words for test, words in kinds if test(mode)), "a device")


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


class Mount(NamedTuple):
    """One line of the list."""

    device: str  # major:minor
    path: str
    kind: str


def mounts() -> Iterator[Mount]:
    with (
        suppress(OSError, ValueError),
        open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as rows,
    ):
        for row in rows:
            # 36 35 98:0 /root /mount options shared:1 - ext4 /dev/sda1 options
            fields = row.split(" ")
            yield Mount(fields[2], _unescaped(fields[4]), fields[fields.index("-") + 1])


def mounted_in(folder: int) -> dict[str, str]:
    """Names in an open folder where other file systems are mounted, with their types."""
    found: dict[str, str] = {}
    with suppress(OSError):
        here = os.readlink(f"/proc/self/fd/{folder}").rstrip("/")
        device = os.fstat(folder).st_dev
        own = f"{os.major(device)}:{os.minor(device)}"
        for mount in mounts():
            parent, _, name = mount.path.rpartition("/")
            if parent == here and name and mount.device != own:
                found[name] = mount.kind
    return found


def mounts_below(path: str) -> dict[str, str]:
    """Absolute paths of all mount points below a path, with their types."""
    above = os.path.abspath(path).rstrip("/") + "/"
    real = os.path.realpath(path).rstrip("/") + "/"
    return {above + mount.path.removeprefix(real): mount.kind for mount in mounts() if mount.path.startswith(real)}


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text) if "\\" in text else text
