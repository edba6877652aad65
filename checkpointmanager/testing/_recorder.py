"""Watches what a program does to a directory and writes it down as operations.

At the end the directory is compared with what it should be by the record: what was changed behind the recorder's
back (by another process, through mmap, by a call it does not know) is an error, not a gap.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import _acknowledgements as acknowledgements
from ._diskimage import ROOT, Entry
from ._files import open_recorded
from ._operations import Acknowledgement, Recording, Sync
from ._oscalls import EXCHANGE, EXCHANGES, descriptors_of, is_faked, replaced, wrapped
from ._shadow import Shadow

CALLS = (
    *(
        "open",
        "close",
        "dup",
        "dup2",
        "read",
        "lseek",
        "write",
        "pwrite",
        "writev",
        "sendfile",
        "truncate",
        "ftruncate",
    ),
    *("fsync", "fdatasync", "sync", "link", "symlink", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"),
)
# Where the kernel or the file system cannot exchange names it is done in three steps: nobody else is looking.
EXCHANGE_UNKNOWN = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP})
OF_ONE_PATH = frozenset({"open", "truncate", "unlink", "remove", "mkdir", "rmdir"})


@dataclass(slots=True)
class Handle:
    """An open file: its node, and where the next write goes."""

    node: int
    position: int = 0
    appends: bool = False


class Recorder:
    """Puts the calls of all threads in one order: each is made and noted before the next."""

    def __init__(self, directory: str, exchanges: Iterable[str] = EXCHANGES) -> None:
        self._exchanges = tuple(exchanges)
        self._guard = threading.RLock()  # guards the two below
        self._shadow = Shadow(directory)
        inodes = self._shadow.inodes
        self._handles = {number: _opened_before(number, inodes[key]) for number, key in descriptors_of(inodes).items()}

    @contextmanager
    def recording(self) -> Iterator[None]:
        opening = partial(open_recorded, self, builtins.open)
        with (
            wrapped(CALLS, self._wrap, dict.fromkeys(self._exchanges, EXCHANGE)),
            replaced(builtins, "open", opening),
            replaced(io, "open", opening),
            acknowledgements.to(self),
        ):
            yield

    def result(self) -> Recording:
        return self._shadow.recording()

    def acknowledge(self, value: Any) -> None:
        with self._guard:
            self._shadow.operations.append(Acknowledgement(f"acknowledge {value!r}", value))

    def sync_failed(self, descriptor: int) -> None:
        """The sync was not made, and the caller was told so."""
        with self._guard:
            if handle := self._handles.get(descriptor):
                text = f"fsync {self._shadow.path(handle.node)} (failed)"
                self._shadow.operations.append(Sync(text, handle.node, failed=True))

    def concerns(self, file: Any) -> bool:
        """True for an open descriptor or a path below the directory."""
        return file in self._handles if isinstance(file, int) else self._find(file) is not None

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        note = getattr(self, f"_{name}")

        def call(*arguments: Any, **options: Any) -> Any:
            if arguments and not self._may_concern(name, arguments, options.get("dir_fd")):
                result = real(*arguments, **options)  # without the guard: it may wait, on a pipe for instance
                if name == "open":
                    self._handles.pop(result, None)
                return result
            with self._guard:
                return note(real, *arguments, **options)

        return call

    def _may_concern(self, name: str, arguments: tuple[Any, ...], dir_fd: int | None) -> bool:
        file = arguments[0]
        if isinstance(file, int):
            return file in self._handles or (name == "dup2" and arguments[1] in self._handles)
        return name not in OF_ONE_PATH or self._find(file, dir_fd) is not None

    def _find(self, path: Any, dir_fd: int | None = None) -> Entry | None:
        if dir_fd is None:
            return self._shadow.find(path)
        base = self._handles.get(dir_fd)
        return self._shadow.find(path, base.node) if base else None

    # Below, a method for each call. The real call comes first: what fails has not happened.

    def _open(self, real: Any, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        entry = self._find(path, dir_fd)
        assert entry
        descriptor: int = real(path, flags, mode, dir_fd=dir_fd)
        self._handles.pop(descriptor, None)
        if entry not in self._shadow.names:
            created = self._shadow.new("file", stat.S_IMODE(os.fstat(descriptor).st_mode))
            self._shadow.change(f"create {self._shadow.text(entry)}", {entry: created})
        node = self._shadow.node(entry)
        if node is not None:
            if flags & os.O_TRUNC:
                self._shadow.resize(node, 0)
            self._handles[descriptor] = Handle(node, appends=bool(flags & os.O_APPEND))
        return descriptor

    def _close(self, real: Any, descriptor: int) -> None:
        self._handles.pop(descriptor, None)
        real(descriptor)

    def _dup(self, real: Any, descriptor: int) -> int:
        copy: int = real(descriptor)
        self._handles[copy] = self._handles[descriptor]
        return copy

    def _dup2(self, real: Any, descriptor: int, copy: int, inheritable: bool = True) -> int:
        real(descriptor, copy, inheritable)
        self._handles.pop(copy, None)
        if descriptor in self._handles:
            self._handles[copy] = self._handles[descriptor]
        return copy

    def _read(self, real: Any, descriptor: int, size: int) -> bytes:
        piece: bytes = real(descriptor, size)
        self._handles[descriptor].position += len(piece)
        return piece

    def _lseek(self, real: Any, descriptor: int, position: int, how: int) -> int:
        handle = self._handles[descriptor]
        answer: int | None = real(descriptor, position, how)
        if answer is None:  # pyfakefs does not say
            size = len(self._shadow.contents[handle.node])
            answer = position + {os.SEEK_SET: 0, os.SEEK_CUR: handle.position}.get(how, size)
        handle.position = answer
        return answer

    def _write(self, real: Any, descriptor: int, data: Any) -> int:
        handle = self._handles[descriptor]
        written: int = real(descriptor, data)
        if handle.appends:
            handle.position = len(self._shadow.contents[handle.node])
        self._shadow.put(handle.node, handle.position, bytes(data)[:written])
        handle.position += written
        return written

    def _pwrite(self, real: Any, descriptor: int, data: Any, offset: int) -> int:
        written: int = real(descriptor, data, offset)
        self._shadow.put(self._handles[descriptor].node, offset, bytes(data)[:written])
        return written

    def _writev(self, _: Any, descriptor: int, buffers: Iterable[Any]) -> int:
        return os.write(descriptor, b"".join(bytes(buffer) for buffer in buffers))

    def _sendfile(self, _: Any, target: int, source: int, offset: int | None, count: int) -> int:
        if offset is not None:
            os.lseek(source, offset, os.SEEK_SET)
        return os.write(target, os.read(source, count))

    def _truncate(self, real: Any, file: Any, size: int) -> None:
        real(file, size)
        entry = None if isinstance(file, int) else self._find(file)
        node = self._shadow.node(entry) if entry else self._handles[file].node
        if node is not None:
            self._shadow.resize(node, size)

    _ftruncate = _truncate

    def _fsync(self, real: Any, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        try:
            real(descriptor)
        except OSError:
            self.sync_failed(number)
            raise
        if handle := self._handles.get(number):
            self._shadow.operations.append(Sync(f"fsync {self._shadow.path(handle.node)}", handle.node))

    _fdatasync = _fsync

    def _sync(self, real: Any) -> None:
        real()
        for path, node in [(".", ROOT), *self._shadow.image().walk()]:
            self._shadow.operations.append(Sync(f"sync {path}", node))

    def _link(self, real: Any, old: Any, new: Any, **options: Any) -> None:
        source, target = self._find(old, options.get("src_dir_fd")), self._find(new, options.get("dst_dir_fd"))
        real(old, new, **options)
        if target:
            node = self._shadow.names[source] if source else self._shadow.bring_in(target)
            self._shadow.change(f"link {self._shadow.text(source)} to {self._shadow.text(target)}", {target: node})

    def _symlink(self, real: Any, to: Any, new: Any, *_: Any, dir_fd: int | None = None) -> None:
        entry = self._find(new, dir_fd)
        real(to, new, dir_fd=dir_fd)
        if entry:
            node = self._shadow.new("symlink", 0o777, os.fsdecode(to))
            self._shadow.change(f"symlink {self._shadow.text(entry)} to {os.fsdecode(to)}", {entry: node})

    def _rename(self, real: Any, old: Any, new: Any, **options: Any) -> None:
        source, target = self._find(old, options.get("src_dir_fd")), self._find(new, options.get("dst_dir_fd"))
        real(old, new, **options)
        names = self._shadow.names
        text = f"rename {self._shadow.text(source)} to {self._shadow.text(target)}"
        if source and target and names[source] == names.get(target):
            return  # two names of one file: then rename does nothing
        if source and target and source.directory == target.directory:
            self._shadow.change(text, {source: None, target: names[source]})
            return
        # Two directories are two changes, and a power loss may leave one without the other.
        if target:
            node = names[source] if source else self._shadow.bring_in(target)
            self._shadow.change(f"{text} (the new name)", {target: node})
        if source:
            self._shadow.change(f"{text} (the old name)", {source: None})

    _replace = _rename

    def _exchange(self, real: Any, directory: int, old: str, new: str) -> None:
        one, other = self._find(old, directory), self._find(new, directory)
        assert one
        assert other
        names, operations = dict(self._shadow.names), list(self._shadow.operations)
        try:
            if is_faked():
                raise OSError(errno.ENOSYS, "a call through ctypes would go past pyfakefs")
            real(directory, old, new)
        except OSError as error:
            if error.errno not in EXCHANGE_UNKNOWN:
                raise
            for source, target in ((old, ".exchanged"), (new, old), (".exchanged", new)):
                os.rename(source, target, src_dir_fd=directory, dst_dir_fd=directory)
            self._shadow.names, self._shadow.operations = names, operations  # as if it had been one step
        text = f"exchange {self._shadow.text(one)} and {self._shadow.text(other)}"
        self._shadow.change(text, {one: names[other], other: names[one]})

    def _unlink(self, real: Any, path: Any, *, dir_fd: int | None = None) -> None:
        self._forget("unlink", real, path, dir_fd)

    _remove = _unlink

    def _rmdir(self, real: Any, path: Any, *, dir_fd: int | None = None) -> None:
        self._forget("rmdir", real, path, dir_fd)

    def _forget(self, call: str, real: Any, path: Any, dir_fd: int | None) -> None:
        entry = self._find(path, dir_fd)
        assert entry
        real(path, dir_fd=dir_fd)
        self._shadow.change(f"{call} {self._shadow.text(entry)}", {entry: None})

    def _mkdir(self, real: Any, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        entry = self._find(path, dir_fd)
        assert entry
        real(path, mode, dir_fd=dir_fd)
        made = self._shadow.new("directory", stat.S_IMODE(os.stat(path, dir_fd=dir_fd).st_mode))
        self._shadow.change(f"mkdir {self._shadow.text(entry)}", {entry: made})


def _opened_before(descriptor: int, node: int) -> Handle:
    """A file that was open already when the recording began."""
    handle = Handle(node)
    with suppress(OSError):
        handle.position = os.lseek(descriptor, 0, os.SEEK_CUR) or 0
        handle.appends = not is_faked() and bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)
    return handle
