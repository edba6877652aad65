"""All reads from the disk: they never follow a link, wait for a FIFO, or open a device.

The list of mounts comes from the kernel, because even lstat hangs on a mount whose server is dead.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

MAX_BYTES = 1 << 30  # larger files are not read at all: a sparse file may have any size

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC


class NotAFile(Exception):
    """The name belongs to something other than a regular file."""


class TooLarge(Exception):
    """The file is larger than MAX_BYTES."""


class Look(NamedTuple):
    """A file's bytes, and its status when they were read."""

    status: os.stat_result
    blob: bytes


def open_folder(path: str, below: int | None = None) -> int:
    """Open a directory. One that the user names may be a link; one `below` it may not, nor on another file system."""
    descriptor = os.open(path, _FOLDER if below is None else _FOLDER | os.O_NOFOLLOW, dir_fd=below)
    try:
        _refuse_other_file_systems(os.fstat(descriptor), below)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def look(name: str, folder: int | None = None) -> Look:
    """Read `name` in the open folder, or by path. Raises NotAFile, TooLarge or OSError.

    Only regular files are opened: a device may react to that. In a folder, files on other file systems are refused.
    """
    _refuse_other_than_files(os.stat(name, dir_fd=folder, follow_symlinks=False))
    try:
        descriptor = os.open(name, FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # replaced just now
            raise NotAFile("a link or a socket") from None
        raise
    try:
        status = os.fstat(descriptor)
        _refuse_other_than_files(status)
        _refuse_other_file_systems(status, folder)
        if status.st_size > MAX_BYTES:
            raise TooLarge(f"{status.st_size} bytes, which is too much to read")
        return Look(status, read_open(descriptor, status.st_size))
    finally:
        os.close(descriptor)


def blob_of(path: str) -> bytes:
    """The bytes of a file; b"" if it cannot be read."""
    try:
        return look(path).blob
    except (OSError, NotAFile, TooLarge):
        return b""


def _refuse_other_than_files(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotAFile(what_is(status.st_mode))


def _refuse_other_file_systems(status: os.stat_result, folder: int | None) -> None:
    if folder is not None and status.st_dev != os.fstat(folder).st_dev:
        raise other_file_system()


def other_file_system() -> OSError:
    return OSError(errno.EXDEV, "is on a different file system from its directory; give its path to check it")


def read_open(descriptor: int, size: int) -> bytes:
    """An open file of this size."""
    blob = os.read(descriptor, size + 1)
    # If the length differs from the status, the read was short, or the file is changing.
    while len(blob) != size and len(blob) <= MAX_BYTES and (piece := os.read(descriptor, 1 << 20)):
        blob += piece
    return blob


def what_is(mode: int) -> str:
    kinds = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((words for test, words in kinds if test(mode)), "a device")


def mounts_below(path: str) -> dict[str, str]:
    """Absolute paths of all mount points below a path, with the types of their file systems."""
    above = os.path.abspath(path).rstrip("/") + "/"
    real = os.path.realpath(path).rstrip("/") + "/"
    return {above + mount.path.removeprefix(real): mount.kind for mount in _mounts() if mount.path.startswith(real)}


def mounted_in(folder: int) -> frozenset[str]:
    """The names in an open folder at which other file systems are mounted. Empty where /proc is not available."""
    try:
        here = os.readlink(f"/proc/self/fd/{folder}").rstrip("/")
    except OSError:
        return frozenset()
    device = os.fstat(folder).st_dev
    own = f"{os.major(device)}:{os.minor(device)}"
    places = (mount.path.rpartition("/") for mount in _mounts() if mount.device != own)
    return frozenset(name for above, _, name in places if above == here)


class _Mount(NamedTuple):
    device: str  # major:minor
    path: str
    kind: str


def _mounts() -> Iterator[_Mount]:
    with (
        suppress(OSError, ValueError),
        open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as rows,
    ):
        for row in rows:
            # 36 35 98:0 /root /mount options shared:1 - ext4 /dev/sda1 options
            fields = row.split(" ")
            yield _Mount(fields[2], _unescaped(fields[4]), fields[fields.index("-") + 1])


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text) if "\\" in text else text
