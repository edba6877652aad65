"""Records calls on open files: one method per call, which makes the call and then notes what it did."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from typing import Any

from ._diskimage import Entry
from ._operations import Sync
from ._shadow import Shadow
from ._watch import Make

WRITTEN_THROUGH = os.O_SYNC | os.O_DSYNC  # O_SYNC is several bits, of which O_DSYNC is one
TMPFILE = getattr(os, "O_TMPFILE", 0)  # several bits as well
THROUGH_ONCE = getattr(os, "RWF_SYNC", 0) | getattr(os, "RWF_DSYNC", 0)
APPENDED_ONCE = getattr(os, "RWF_APPEND", 0)


class FileCalls:
    """The real call comes first: a call that fails has not happened.

    A descriptor without a node is that of a file outside, opened through a symbolic link.
    """

    def __init__(self, shadow: Shadow) -> None:
        self._shadow = shadow
        self.unsynced: set[int] = set()  # nodes with bytes that no sync and no O_SYNC has made durable

    def find(self, path: Any, dir_fd: int | None = None) -> Entry | None:
        if dir_fd is None or os.path.isabs(path):
            return self._shadow.find(path)
        base = self._shadow.node_of(dir_fd)
        return None if base is None else self._shadow.find(path, base)

    def open(self, make: Make, path: Any, flags: int, _: int = 0o777, *, dir_fd: int | None = None) -> int:
        entry = self.find(path, dir_fd)
        if entry and entry not in self._shadow.names and exists(path, dir_fd):
            self._shadow.refuse(self._shadow.text(entry))
        descriptor: int = make()
        status = os.fstat(descriptor)
        if TMPFILE and flags & TMPFILE == TMPFILE:
            self._shadow.new("file", status)  # no name yet: a link may give it one
        elif entry and entry not in self._shadow.names:
            self._shadow.change(f"create {self._shadow.text(entry)}", {entry: self._shadow.new("file", status)})
        elif flags & os.O_TRUNC:
            self._shadow.resize(self._shadow.node_of(descriptor), 0)
        return descriptor

    def write(self, make: Make, descriptor: int, data: Any) -> int:
        written: int = make()
        self._put(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR) - written, bytes(data)[:written])
        return written

    def writev(self, make: Make, descriptor: int, buffers: Iterable[Any]) -> int:
        pieces = list(buffers)
        return self.write(lambda: make(descriptor, pieces), descriptor, _joined(pieces))

    def pwrite(self, make: Make, descriptor: int, data: Any, offset: int) -> int:
        written: int = make()
        if _flags(descriptor) & os.O_APPEND:
            offset = self._end(descriptor)  # as Linux does
        self._put(descriptor, offset, bytes(data)[:written])
        return written

    def pwritev(self, make: Make, descriptor: int, buffers: Iterable[Any], offset: int, flags: int = 0) -> int:
        pieces = list(buffers)
        written: int = make(descriptor, pieces, offset, flags)
        if (flags & APPENDED_ONCE) | (_flags(descriptor) & os.O_APPEND):
            offset = self._end(descriptor)
        self._put(descriptor, offset, _joined(pieces)[:written], through=bool(flags & THROUGH_ONCE))
        return written

    # Where the kernel moves the bytes itself, Python does it instead: the same bytes, through calls that are noted.

    def sendfile(self, _: Make, target: int, source: int, offset: int | None, count: int) -> int:
        data = os.read(source, count) if offset is None else os.pread(source, count, offset)
        return self.write(lambda: os.write(target, data), target, data)

    def copy_file_range(
        self, _: Make, source: int, target: int, count: int, offset: int | None = None, to: int | None = None
    ) -> int:
        if to is None:
            return self.sendfile(_, target, source, offset, count)
        data = os.read(source, count) if offset is None else os.pread(source, count, offset)
        return self.pwrite(lambda: os.pwrite(target, data, to), target, data, to)

    def truncate(self, make: Make, file: Any, *_: Any) -> None:
        """Also for posix_fallocate: what matters is the new size."""
        make()
        self._shadow.resize(self._shadow.node_of(file), os.stat(file).st_size)

    ftruncate = posix_fallocate = truncate

    def fsync(self, make: Make, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        try:
            make()
        except OSError:
            self.sync_failed(number)
            raise
        self._synced(self._shadow.node_of(number), "fsync")

    fdatasync = fsync

    def sync_failed(self, descriptor: int) -> None:
        node = self._shadow.node_of(descriptor)
        if node is not None:
            self._shadow.operations.append(Sync(f"fsync {self._shadow.path(node)} (failed)", node, failed=True))

    def _synced(self, node: int | None, how: str) -> None:
        if node is not None:
            self.unsynced.discard(node)
            self._shadow.operations.append(Sync(f"{how} {self._shadow.path(node)}", node))

    def _put(self, descriptor: int, offset: int, data: bytes, *, through: bool = False) -> None:
        node = self._shadow.node_of(descriptor)
        if node is None:
            return
        self._shadow.put(node, offset, data)
        if not through and not _flags(descriptor) & WRITTEN_THROUGH:
            self.unsynced.add(node)
        elif node not in self.unsynced:  # only these bytes are durable; others may still be unsynced
            self._synced(node, "O_SYNC")

    def _end(self, descriptor: int) -> int:
        node = self._shadow.node_of(descriptor)
        return 0 if node is None else len(self._shadow.contents[node])


def _joined(buffers: Sequence[Any]) -> bytes:
    return b"".join(bytes(buffer) for buffer in buffers)


def _flags(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_GETFL)


def exists(path: Any, dir_fd: int | None) -> bool:
    try:
        os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return True
