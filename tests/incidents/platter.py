"""What of a directory has reached the disk, and what a power loss at this moment would leave of it.

A file's bytes are safe since its last fsync, the directory's names since the directory's. A journaling file
system may be ahead with the names: that is how a file comes to have its new name and no bytes.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

Names = dict[str, tuple[int, int]]  # each name's inode and size


class Platter:
    """Watches one directory. `directory` is the disk as processes see it."""

    def __init__(self, directory: Path, after: Path) -> None:
        directory.mkdir(mode=0o700)
        self.directory = directory
        self._after = after
        self._bytes: dict[int, bytes] = {}  # by inode, as last synced
        self._names: Names = {}
        self._held: list[int] = []  # descriptors, so that no inode number is used twice

    def __enter__(self) -> Platter:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._held:
            os.close(descriptor)

    @contextmanager
    def spinning(self) -> Iterator[None]:
        """Inside, every fsync counts."""
        real = os.fsync

        def fsync(descriptor: int) -> None:
            real(descriptor)
            self._synced(descriptor)

        with mock.patch.object(os, "fsync", fsync):
            yield

    def power_losses(self) -> Iterator[Path]:
        """The directory as it may be found afterwards: names ahead or as synced, lost bytes missing or NUL."""
        for names in (self._present(), self._names):
            for nul in (False, True):
                shutil.rmtree(self._after, ignore_errors=True)
                self._after.mkdir(mode=0o700)
                for name, (inode, size) in names.items():
                    lost = b"\0" * size if nul else b""
                    (self._after / name).write_bytes(self._bytes.get(inode, lost))
                yield self._after

    def _synced(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            if os.path.samestat(status, self.directory.stat()):
                self._names = self._present()
            return
        self._held.append(os.dup(descriptor))
        named = [path for path in self.directory.iterdir() if path.stat().st_ino == status.st_ino]
        self._bytes[status.st_ino] = named[0].read_bytes()

    def _present(self) -> Names:
        return {path.name: (path.stat().st_ino, path.stat().st_size) for path in self.directory.iterdir()}
