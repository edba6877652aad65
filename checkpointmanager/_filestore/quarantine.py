"""Where the bytes of damaged checkpoints are kept before anything replaces them.

A hard link where the file system makes one: nothing has to be read, so even a file with bad blocks, or one
too large to copy, is kept as it is. Elsewhere a copy. A folder in a checkpoint's place is moved here, since no
file can replace it; a link or a FIFO has no bytes to keep.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from datetime import UTC, datetime

from .._format.keys import is_name
from .._format.names import QUARANTINE
from .._format.reason import Reason
from .directory import Directory
from .system import sync

KEPT_PER_KEY = 4


def keep(directory: Directory, name: str, key: str, reason: Reason) -> str:
    """Make `name` durable in quarantine and return where it is, "" if it has no bytes.

    The newest four of a key are kept.
    """
    status = directory.stat(name)
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        return ""
    with suppress(FileExistsError):
        os.mkdir(QUARANTINE, 0o700, dir_fd=directory.descriptor)
    directory.sync()  # also if it was there: an attempt before may have failed to
    folder = directory.open_folder(QUARANTINE)
    try:
        kept_as = _already_kept(folder, key, status)
        if not kept_as:
            time = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
            kept_as = f"{key}.{time}.{reason}.json"
            _move_or_link(directory, name, status, folder, kept_as)
        sync(folder)
        _prune(folder, key)
    finally:
        os.close(folder)
    return os.path.join(directory.path, QUARANTINE, kept_as)


def kept(directory: Directory) -> dict[str, list[str]]:
    """The copies of each key, oldest first; nothing where nothing was ever damaged."""
    try:
        folder = directory.open_folder(QUARANTINE)
    except FileNotFoundError:
        return {}
    try:
        names = sorted(os.listdir(folder))
    finally:
        os.close(folder)
    found: dict[str, list[str]] = {}
    for name in names:
        key, *others = name.rsplit(".", 3)
        if len(others) == 3 and is_name(key):
            found.setdefault(key, []).append(os.path.join(directory.path, QUARANTINE, name))
    return found


def _move_or_link(directory: Directory, name: str, status: os.stat_result, folder: int, kept_as: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        os.rename(name, kept_as, src_dir_fd=directory.descriptor, dst_dir_fd=folder)
    else:
        _sync_bytes(directory, name)
        directory.link_or_copy(name, kept_as, into=folder)


def _already_kept(folder: int, key: str, status: os.stat_result) -> str:
    """A retry finds the link that the failed attempt made: one copy is enough."""
    for kept_as in _of_key(folder, key):
        if os.path.samestat(os.stat(kept_as, dir_fd=folder, follow_symlinks=False), status):
            return kept_as
    return ""


def _sync_bytes(directory: Directory, name: str) -> None:
    with suppress(OSError):  # what cannot be opened or synced is still worth a link
        descriptor = directory.open(name)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)


def _prune(folder: int, key: str) -> None:
    for kept_as in _of_key(folder, key)[:-KEPT_PER_KEY]:
        with suppress(OSError):
            os.unlink(kept_as, dir_fd=folder)


def _of_key(folder: int, key: str) -> list[str]:
    """The copies of one key, oldest first: all names differ only in time and reason."""
    return sorted(name for name in os.listdir(folder) if name.rsplit(".", 3)[0] == key)
