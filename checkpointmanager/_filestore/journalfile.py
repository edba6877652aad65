"""The file `.journal`: made whole under a temp name, renamed into place, then appended to in blocks.

The blanks behind the last record are written in advance, because the first write to an allocated but unwritten part of
a file waits for the file system's own journal. A group of records fills whole blocks, so that no sector with
acknowledged bytes is ever written again.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

from .._interruption import ignored
from .._locks import notify_after_fork
from ..format import JOURNAL, padded, seal_journal
from .directory import CREATE, WRITE, Directory
from .system import sync, sync_data, try_lock, write_all

BLANKS = b"\n" * (1 << 20)
LOCK_SECONDS = 10.0  # a reader that looks for an owner holds the lock for microseconds
POLL_SECONDS = 0.001


class JournalFile:
    """One journal, open for appending. While it is locked, readers know that its owner lives and names are right."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._close = os.close  # of the `os` that opens the descriptor: pyfakefs may be gone when this is collected
        self._descriptors: list[int] = []
        self._temp = ""
        notify_after_fork(self)
        self._position = self._size = 0

    @classmethod
    def write(cls, directory: Directory, lines: bytes, size: int) -> JournalFile:
        """A new journal of at least `size` bytes that holds these lines, synced, but under a temp name."""
        journal = cls(directory)
        temp = journal._temp = directory.new_temp()
        try:
            journal._write(temp, padded(seal_journal(datetime.now(UTC))) + padded(lines), size)
        except BaseException:
            journal.close()  # at once: whoever keeps the error keeps this object
            directory.discard(temp)
            raise
        return journal

    def put_in_place(self) -> None:
        """Replace the old journal. If this raises, either of the two may be there after a power loss."""
        try:
            self._directory.rename(self._temp, JOURNAL)
            self._directory.sync()
        except BaseException:
            self.close()
            self._directory.discard(self._temp)
            raise

    @classmethod
    def reopen(cls, directory: Directory, end: int) -> JournalFile:
        """The journal that is there, for appending from `end`; its bytes are synced first."""
        journal = cls(directory)
        directory.open(journal._descriptors, JOURNAL, WRITE)
        sync(journal._descriptors[0])
        journal._position, journal._size = end, os.fstat(journal._descriptors[0]).st_size
        return journal

    def has_room(self, size: int) -> bool:
        return self._position + size <= self._size

    def append(self, lines: bytes) -> float:
        """Write whole blocks and sync them; returns how many seconds the sync took. Never again after a failure."""
        descriptor = self._descriptors[0]
        os.lseek(descriptor, self._position, os.SEEK_SET)
        write_all(descriptor, lines)
        started = time.perf_counter()
        sync_data(descriptor)
        self._position += len(lines)
        return time.perf_counter() - started

    def lock(self) -> None:
        """From now on readers trust the names. Released when the journal is closed or its process ends."""
        deadline = time.monotonic() + LOCK_SECONDS
        try:
            while not try_lock(self._descriptors[0]):
                if time.monotonic() > deadline:
                    raise TimeoutError("another process holds the lock of the journal")
                time.sleep(POLL_SECONDS)
        except BaseException:
            self.close()
            self._directory.discard(self._temp)
            raise

    def close(self) -> None:
        while self._descriptors:
            with ignored(OSError):  # everything that matters was synced
                self._close(self._descriptors.pop())

    __del__ = forked = close

    def _write(self, temp: str, content: bytes, size: int) -> None:
        self._directory.open(self._descriptors, temp, CREATE)
        descriptor = self._descriptors[0]
        write_all(descriptor, content)
        self._position, self._size = len(content), max(size, len(content))
        for start in range(len(content), size, len(BLANKS)):
            write_all(descriptor, BLANKS[: size - start])
        sync(descriptor)
