"""Records calls on open files: one method per call, which makes the call and then notes what it did."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ._diskimage import ROOT, Entry
from ._operations import Sync
from ._oscalls import descriptors_of, is_below, is_faked, path_of
from ._shadow import Shadow

WRITTEN_THROUGH = os.O_SYNC | os.O_DSYNC  # O_SYNC is several bits, of which O_DSYNC is one
TMPFILE = getattr(os, "O_TMPFILE", 0)  # several bits as well
THROUGH_ONCE = getattr(os, "RWF_SYNC", 0) | getattr(os, "RWF_DSYNC", 0)
APPENDED_ONCE = getattr(os, "RWF_APPEND", 0)


@dataclass(slots=True)
class Handle:
    """An open file: its node, where the next write goes, and whether a write is durable when it returns."""

    node: int
    position: int = 0
    appends: bool = False
    through: bool = False


class FileCalls:
    """Keeps the open descriptors of files below the directory.

    The real call comes first: a call that fails has not happened.
    """

    def __init__(self, shadow: Shadow) -> None:
        self._shadow = shadow
        self.unsynced: set[int] = set()  # nodes with bytes that no sync and no O_SYNC has made durable
        inodes = shadow.inodes
        self.handles = {number: Handle(inodes[key]) for number, key in descriptors_of(inodes).items()}
        for number, handle in self.handles.items():
            _take_state(handle, number)

    def handle(self, descriptor: int) -> Handle | None:
        """The open file of a descriptor. Also finds descriptors created unseen, by fcntl for instance."""
        if descriptor not in self.handles and is_below(path := path_of(descriptor), self._shadow.root):
            entry = self._shadow.find(path)
            if entry in self._shadow.names:
                self.handles[descriptor] = Handle(self._shadow.at(entry))
                _take_state(self.handles[descriptor], descriptor)
        return self.handles.get(descriptor)

    def find(self, path: Any, dir_fd: int | None = None) -> Entry | None:
        if dir_fd is None or os.path.isabs(path):
            return self._shadow.find(path)
        base = self.handle(dir_fd)
        return self._shadow.find(path, base.node) if base else None

    def open(self, real: Any, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        entry = self.find(path, dir_fd)
        assert entry
        if entry not in self._shadow.names and exists(path, dir_fd):
            self._shadow.refuse(self._shadow.text(entry))
        descriptor: int = real(path, flags, mode, dir_fd=dir_fd)
        self.handles.pop(descriptor, None)
        node = self._opened(entry, flags, descriptor)
        if node is not None:
            if flags & os.O_TRUNC:
                self._shadow.resize(node, 0)
            handle = Handle(node, appends=bool(flags & os.O_APPEND), through=bool(flags & WRITTEN_THROUGH))
            self.handles[descriptor] = handle
        return descriptor

    def _opened(self, entry: Entry, flags: int, descriptor: int) -> int | None:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if TMPFILE and flags & TMPFILE == TMPFILE:
            return self._shadow.new("file", mode)  # no name yet: a link may give it one
        if entry not in self._shadow.names:
            self._shadow.change(f"create {self._shadow.text(entry)}", {entry: self._shadow.new("file", mode)})
        return self._shadow.node(entry)

    def close(self, real: Any, descriptor: int) -> None:
        self.handles.pop(descriptor, None)
        real(descriptor)

    def dup(self, real: Any, descriptor: int) -> int:
        copy: int = real(descriptor)
        self.handles[copy] = self.handles[descriptor]
        return copy

    def dup2(self, real: Any, descriptor: int, copy: int, inheritable: bool = True) -> int:
        real(descriptor, copy, inheritable)
        self.handles.pop(copy, None)
        if descriptor in self.handles:
            self.handles[copy] = self.handles[descriptor]
        return copy

    def read(self, real: Any, descriptor: int, size: int) -> bytes:
        piece: bytes = real(descriptor, size)
        self.handles[descriptor].position += len(piece)
        return piece

    def readv(self, real: Any, descriptor: int, buffers: Sequence[Any]) -> int:
        size: int = real(descriptor, buffers)
        self.handles[descriptor].position += size
        return size

    def lseek(self, real: Any, descriptor: int, position: int, how: int) -> int:
        handle = self.handles[descriptor]
        answer: int | None = real(descriptor, position, how)
        if answer is None:  # pyfakefs does not say
            size = len(self._shadow.contents[handle.node])
            answer = position + {os.SEEK_SET: 0, os.SEEK_CUR: handle.position}.get(how, size)
        handle.position = answer
        return answer

    def write(self, real: Any, descriptor: int, data: Any) -> int:
        written: int = real(descriptor, data)
        self._put_next(self.handles[descriptor], bytes(data)[:written])
        return written

    def writev(self, real: Any, descriptor: int, buffers: Iterable[Any]) -> int:
        pieces = list(buffers)
        written: int = real(descriptor, pieces)
        self._put_next(self.handles[descriptor], _joined(pieces)[:written])
        return written

    def pwrite(self, real: Any, descriptor: int, data: Any, offset: int) -> int:
        written: int = real(descriptor, data, offset)
        self._put_at(self.handles[descriptor], offset, bytes(data)[:written])
        return written

    def pwritev(self, real: Any, descriptor: int, buffers: Iterable[Any], offset: int, flags: int = 0) -> int:
        pieces = list(buffers)
        written: int = real(descriptor, pieces, offset, flags)
        handle = self.handles[descriptor]
        if flags & APPENDED_ONCE:
            offset = self._end(handle)
        self._put_at(handle, offset, _joined(pieces)[:written], through=bool(flags & THROUGH_ONCE))
        return written

    # Where the kernel moves the bytes itself, Python does it instead: the same bytes, through calls that are seen.

    def sendfile(self, _: Any, target: int, source: int, offset: int | None, count: int) -> int:
        return os.write(target, os.read(source, count) if offset is None else os.pread(source, count, offset))

    def splice(self, _: Any, *arguments: Any) -> int:
        return self.copy_file_range(_, *arguments[:5])

    def copy_file_range(
        self, _: Any, source: int, target: int, count: int, offset: int | None = None, to: int | None = None
    ) -> int:
        data = os.read(source, count) if offset is None else os.pread(source, count, offset)
        return os.write(target, data) if to is None else os.pwrite(target, data, to)

    def posix_fallocate(self, real: Any, descriptor: int, offset: int, length: int) -> None:
        real(descriptor, offset, length)
        handle = self.handles[descriptor]
        self._shadow.resize(handle.node, max(self._end(handle), offset + length))

    def truncate(self, real: Any, file: Any, size: int) -> None:
        real(file, size)
        entry = None if isinstance(file, int) else self.find(file)
        node = self._shadow.node(entry) if entry else self.handles[file].node
        if node is not None:
            self._shadow.resize(node, size)

    ftruncate = truncate

    def fsync(self, real: Any, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        try:
            real(descriptor)
        except OSError:
            self.sync_failed(number)
            raise
        if handle := self.handle(number):
            self._synced(handle.node, "fsync")

    fdatasync = fsync

    def sync_failed(self, descriptor: int) -> None:
        if handle := self.handle(descriptor):
            text = f"fsync {self._shadow.path(handle.node)} (failed)"
            self._shadow.operations.append(Sync(text, handle.node, failed=True))

    def sync(self, real: Any) -> None:
        real()
        for node in (ROOT, *(node for _, node in self._shadow.image().walk())):
            self._synced(node, "sync")

    def _synced(self, node: int, how: str) -> None:
        self.unsynced.discard(node)
        self._shadow.operations.append(Sync(f"{how} {self._shadow.path(node)}", node))

    def _put_next(self, handle: Handle, data: bytes) -> None:
        if handle.appends:
            handle.position = self._end(handle)
        self._put_at(handle, handle.position, data)
        handle.position += len(data)

    def _put_at(self, handle: Handle, offset: int, data: bytes, *, through: bool = False) -> None:
        if handle.appends:
            offset = self._end(handle)  # as Linux does, even for pwrite
        self._shadow.put(handle.node, offset, data)
        if not through and not handle.through:
            self.unsynced.add(handle.node)
        elif handle.node not in self.unsynced:  # only these bytes are durable; others may still be unsynced
            self._synced(handle.node, "O_SYNC")

    def _end(self, handle: Handle) -> int:
        return len(self._shadow.contents[handle.node])


def _joined(buffers: Sequence[Any]) -> bytes:
    return b"".join(bytes(buffer) for buffer in buffers)


def _take_state(handle: Handle, descriptor: int) -> None:
    """Take over the state of a file that was opened before the recording began, or unseen."""
    with suppress(OSError):
        handle.position = os.lseek(descriptor, 0, os.SEEK_CUR) or 0
        flags = 0 if is_faked() else fcntl.fcntl(descriptor, fcntl.F_GETFL)
        handle.appends, handle.through = bool(flags & os.O_APPEND), bool(flags & WRITTEN_THROUGH)


def exists(path: Any, dir_fd: int | None) -> bool:
    try:
        os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return True
