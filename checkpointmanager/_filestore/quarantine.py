"""Keeps the bytes of damaged checkpoints before anything replaces them, and those of retired ones.

It makes a hard link where the file system can: nothing has to be read, so even a file with bad blocks, or one too large
to copy, is kept as it is. Elsewhere it makes a copy.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from .._interruption import ignored, pass_on_interruption
from ..format import (
    KEPT,
    KEPT_BYTES,
    KEPT_PER_KEY,
    KEPT_RETIRED,
    MAX_BYTES,
    QUARANTINE,
    RETIRED,
    Damaged,
    TooNew,
    copy_name,
    current_name,
    open_sealed,
    parse_copy,
    time_now,
)
from .directory import Directory
from .reading import read_file
from .system import sync


class _Copy(NamedTuple):
    """Sorts by likely age: a time in the future comes from a clock that was ahead, and counts as the oldest."""

    made_since: bool  # its time is not in the future
    time: str
    name: str
    key: str
    is_retired: bool


class Quarantine:
    """The quarantine of one directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._making = threading.Lock()

    def keep(self, name: str, key: str, reason: str) -> str:
        """Keep `name` durably and return the path of the copy, or "" for something that is not a file."""
        status = self._directory.stat(name)
        if not stat.S_ISREG(status.st_mode):
            return ""
        with self._opened() as folder:
            kept_as = self._link(folder, name, key, reason, status)
            self._prune(folder, key, kept_as, is_retired=reason == RETIRED)
        return os.path.join(self._directory.path, QUARANTINE, kept_as)

    def kept(self) -> dict[str, list[str]]:
        """The paths of the copies of each key, oldest first; empty if nothing was ever damaged."""
        try:
            folder = self._directory.open_folder(QUARANTINE)
        except FileNotFoundError:
            return {}
        found: dict[str, list[str]] = {}
        try:
            for copy in _copies(folder):
                found.setdefault(copy.key, []).append(os.path.join(self._directory.path, QUARANTINE, copy.name))
        finally:
            os.close(folder)
        return found

    @contextmanager
    def _opened(self) -> Iterator[int]:
        self._make()
        folder = self._directory.open_folder(QUARANTINE)
        try:
            yield folder
        finally:
            with ignored(OSError):  # nothing was written through this descriptor
                os.close(folder)

    def _make(self) -> None:
        """Syncs even if the folder exists: a process that was killed may have just created it."""
        with self._making:
            made = False
            with suppress(FileExistsError):
                os.mkdir(QUARANTINE, 0o700, dir_fd=self._directory.descriptor)
                made = True
            try:
                self._directory.sync()
            except OSError as error:
                pass_on_interruption(error)
                if made:  # the next attempt must create it again: a second sync would not restore it
                    with ignored(OSError):
                        os.rmdir(QUARANTINE, dir_fd=self._directory.descriptor)
                raise

    def _link(self, folder: int, name: str, key: str, reason: str, status: os.stat_result) -> str:
        kept_as = _already_kept(folder, key, status)
        if kept_as:
            sync(folder)
            return kept_as
        kept_as = copy_name(key, reason, os.listdir(folder))
        with ignored(OSError):  # a file that cannot be opened or synced is still worth a link
            self._directory.sync_file(name)
        self._directory.link_or_copy(name, kept_as, into=folder)
        try:
            sync(folder)
        except BaseException:
            with ignored(OSError):  # so that the next attempt creates it again
                os.unlink(kept_as, dir_fd=folder)
            raise
        return kept_as

    def _prune(self, folder: int, key: str, kept_as: str, *, is_retired: bool) -> None:
        """Never deletes the copy just made, whatever the clock says, or the last copy of what is damaged or gone."""
        copies = [copy for copy in _copies(folder) if copy.name != kept_as and copy.is_retired == is_retired]
        newest = {copy.key: copy.name for copy in copies} | {key: kept_as}
        surplus = [copy for copy in copies if copy.key == key][: 1 - KEPT_PER_KEY]
        copies = [copy for copy in copies if copy not in surplus]
        room, number = KEPT_BYTES - _size(folder, kept_as), (KEPT_RETIRED if is_retired else KEPT) - 1
        for copy in reversed(copies):
            room, number = room - _size(folder, copy.name), number - 1
            is_last = newest[copy.key] == copy.name and not is_retired and not self._is_whole(copy.key)
            if (room < 0 or number < 0) and not is_last:
                surplus.append(copy)
        for copy in surplus:
            _delete(folder, copy.name)

    def _is_whole(self, key: str) -> bool:
        try:
            open_sealed(read_file(self._directory, current_name(key), MAX_BYTES), key)
        except (FileNotFoundError, Damaged):
            return False
        except TooNew:
            pass
        return True


def _copies(folder: int) -> list[_Copy]:
    """All copies, oldest first."""
    now = time_now()
    found = [(copy, name) for name in os.listdir(folder) if (copy := parse_copy(name))]
    return sorted(_Copy(copy.time <= now, copy.time, name, copy.key, copy.reason == RETIRED) for copy, name in found)


def _already_kept(folder: int, key: str, status: os.stat_result) -> str:
    """The link that an earlier, failed attempt made, or "": one copy is enough."""
    for copy in _copies(folder):
        if copy.key == key and os.path.samestat(os.stat(copy.name, dir_fd=folder, follow_symlinks=False), status):
            return copy.name
    return ""


def _size(folder: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    except OSError as error:
        pass_on_interruption(error)
        return 0


def _delete(folder: int, name: str) -> None:
    with ignored(OSError):
        os.unlink(name, dir_fd=folder)
