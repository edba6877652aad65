"""Writes and syncs files before any name of a checkpoint points to them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import NamedTuple

from .directory import Directory
from .sidebyside import side_by_side
from .system import sync, write_all

FILES_AT_ONCE = 128  # bounds the open descriptors
SYNC_THREADS = 4


class FileFailed(Exception):
    """A file could not be written or synced. `key` is its key, "" for the record."""

    def __init__(self, key: str, error: OSError) -> None:
        super().__init__(key)
        self.key = key
        self.error = error


class _NewFile(NamedTuple):
    name: str
    key: str
    descriptor: int


class NewFiles:
    """The new files of a transaction, under temp names: the next open sweeps them unless a record names them."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._open: list[_NewFile] = []
        self._descriptors: set[int] = set()
        self.names: list[str] = []
        self.slowest_sync = 0.0  # seconds

    def add(self, blob: bytes, key: str = "") -> str:
        """Write one file, for a key or the record, and return its name. Raises FileFailed, as sync does."""
        if len(self._open) == FILES_AT_ONCE:
            self.sync()
        name = self._directory.new_temp()
        self.names.append(name)
        try:
            descriptor = self._directory.create(name)
            self._descriptors.add(descriptor)
            self._open.append(_NewFile(name, key, descriptor))
            write_all(descriptor, blob)
        except OSError as error:
            raise FileFailed(key, error) from error
        return name

    def sync(self) -> None:
        """Sync every file added so far, several at once, which takes a third of the time of one by one."""
        waiting, self._open = self._open, []
        side_by_side(self._sync, waiting, SYNC_THREADS)

    def discard(self) -> None:
        """Close and remove all files."""
        for descriptor in list(self._descriptors):
            with suppress(OSError):
                self._close(descriptor)
        for name in self.names:
            self._directory.discard(name)

    def _sync(self, file: _NewFile) -> None:
        try:
            started = time.perf_counter()
            sync(file.descriptor)
            self.slowest_sync = max(self.slowest_sync, time.perf_counter() - started)
            self._close(file.descriptor)
        except OSError as error:
            raise FileFailed(file.key, error) from error

    def _close(self, descriptor: int) -> None:
        """Close at most once: after two interrupts both a thread and discard() may get here."""
        try:
            self._descriptors.remove(descriptor)
        except KeyError:
            return
        os.close(descriptor)
