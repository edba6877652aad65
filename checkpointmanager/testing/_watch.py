"""Sees every system call on files below one directory, and lets a function act in place of the call."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar

from ._files import open_recorded
from ._standins import CALLS, OPEN, Function, handled, is_faked

F = TypeVar("F", bound=Callable[..., Any])
Inode = tuple[int, int]  # a file's device and inode: the same for all its names and descriptors

SYNCS = frozenset({"fsync", "fdatasync"})

# The arguments that are files, each with its keyword; by default the first argument, with dir_fd.
FILES: dict[str, tuple[tuple[int, str], ...]] = {
    **dict.fromkeys(("link", "rename", "replace"), ((0, "src_dir_fd"), (1, "dst_dir_fd"))),
    **dict.fromkeys(("dup2", "sendfile", "copy_file_range"), ((0, ""), (1, ""))),
    "symlink": ((1, "dir_fd"),),
}
OF_ONE_FILE = ((0, "dir_fd"),)


class Call(NamedTuple):
    """A call of `os`, and the files that it was about: for a descriptor, the name that it was opened as."""

    name: str  # such as "fsync"
    about: str

    def __str__(self) -> str:
        return f"{self.name} {self.about}"

    def concerns(self, name: str) -> bool:
        """True if the call is about a file of this name, in any folder; "" matches all calls."""
        return not name or re.search(rf"(?:^|[ /]){re.escape(name)}(?: |$)", self.about) is not None


Make = Callable[..., Any]  # makes the call, with other arguments if any are passed
# Gets the call, a function that makes it, its arguments and its keywords; what it returns is the call's result.
Around = Callable[[Call, Make, tuple[Any, ...], dict[str, Any]], Any]


class _Busy(threading.local):
    now = False  # of this thread


_own_work = _Busy()  # while this thread works for the kit


def unwatched(function: F) -> F:
    """Decorates what the kit does for itself: no watch sees the calls that it makes."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        before, _own_work.now = _own_work.now, True
        try:
            return function(*arguments)
        finally:
            _own_work.now = before

    return call  # type: ignore[return-value]


@unwatched
def inode_of(file: Any) -> Inode | None:
    """Of a descriptor or path; None if there is no such file."""
    with suppress(OSError):
        status = os.stat(file)
        return status.st_dev, status.st_ino
    return None


@unwatched
def open_descriptors() -> list[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return [int(name) for name in os.listdir(folder)]
    return list(range(3, 256))  # pyfakefs, whose first three are not files


def path_of(descriptor: int) -> str:
    """The path of an open file; "" if the kernel does not say."""
    with suppress(OSError):
        return "" if is_faked() else os.readlink(f"/proc/self/fd/{descriptor}")
    return ""


def is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


class Watch:
    """Passes each call on files below `root` to `around`, in the thread that makes it."""

    def __init__(self, root: str, around: Around, calls: Sequence[str] = CALLS) -> None:
        self._roots = _spellings(root)
        self._around = around
        self._calls = calls
        self._busy = _Busy()
        self._names = _names_below(root)  # of each file: what it was opened as, or its path below the root
        self._opened_before = self._descriptors()
        self.repeated_syncs: list[Call] = []  # of a descriptor whose sync had failed: such a sync proves nothing
        self._failed_syncs: set[int] = set()

    def watching(self) -> AbstractContextManager[None]:
        return handled(self._calls, self._handler)

    def concerns(self, file: Any, dir_fd: int | None = None) -> bool:
        if isinstance(file, int):
            return self._name_of(file) is not None
        if dir_fd is not None and not os.path.isabs(file):
            return self._name_of(dir_fd) is not None
        path = os.path.abspath(os.fsdecode(file))
        return any(is_below(path, root) for root in self._roots)

    def opened_elsewhere(self, descriptor: int) -> None:
        """Forget the file that had this inode before."""
        if (inode := inode_of(descriptor)) in self._names:
            del self._names[inode]

    def opened_since(self) -> set[int]:
        """The descriptors of files below the root that were opened since the watch was made."""
        return self._descriptors() - self._opened_before

    def _descriptors(self) -> set[int]:
        return {descriptor for descriptor in open_descriptors() if inode_of(descriptor) in self._names}

    def _name_of(self, descriptor: int) -> str | None:
        """The name of a descriptor's file. Also finds files that were opened unseen, by io.FileIO for instance."""
        inode = inode_of(descriptor)
        if inode and inode not in self._names:
            path = path_of(descriptor)
            for root in self._roots:
                if is_below(path, root):
                    self._names[inode] = os.path.relpath(path, root)
        return self._names.get(inode) if inode else None

    def _handler(self, name: str, real: Function) -> Function:
        """Calls that `real` or `around` make themselves are not seen."""
        if name == OPEN:
            return partial(open_recorded, self, real)
        seen = self._seen(name, real)

        def call(*arguments: Any, **options: Any) -> Any:
            if self._busy.now or _own_work.now:
                return real(*arguments, **options)
            self._busy.now = True
            try:
                return seen(*arguments, **options)
            finally:
                self._busy.now = False

        return call

    def _seen(self, name: str, real: Function) -> Function:
        def call(*arguments: Any, **options: Any) -> Any:
            files = _files(name, arguments, options)
            if not any(self.concerns(*file) for file in files):
                result = real(*arguments, **options)
                if name == "open":
                    self.opened_elsewhere(result)
                return result
            met = Call(name, " ".join(self._text(file) for file, _ in files))

            def make(*others: Any) -> Any:
                result = real(*(others or arguments), **options)
                if name == "open" and (inode := inode_of(result)):
                    self._names[inode] = met.about
                return result

            return self._met(met, make, arguments, options)

        return call

    def _text(self, file: Any) -> str:
        return self._name_of(file) or str(file) if isinstance(file, int) else os.fsdecode(file)

    def _met(self, call: Call, make: Make, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if call.name == "close":
            self._failed_syncs.discard(arguments[0])
        if call.name not in SYNCS:
            return self._around(call, make, arguments, options)
        if arguments[0] in self._failed_syncs:
            self.repeated_syncs.append(call)
        try:
            return self._around(call, make, arguments, options)
        except OSError:
            self._failed_syncs.add(arguments[0])
            raise


@contextmanager
def watching(
    directory: str | os.PathLike[str],
    *,
    before: Callable[[Call], object] | None = None,
    after: Callable[[Call], object] | None = None,
) -> Iterator[list[Call]]:
    """Inside the block, every call on files below `directory` is added to the list just before it is made.

    `before` and `after` are called around each call, in the thread that makes it; `after` only if the call succeeded.
    Calls that they make themselves are not listed.
    """
    calls: list[Call] = []

    def around(call: Call, make: Make, *_: Any) -> Any:
        calls.append(call)
        if before:
            before(call)
        result = make()
        if after:
            after(call)
        return result

    with Watch(os.fspath(directory), around).watching():
        yield calls


def _files(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> list[tuple[Any, int | None]]:
    """The files of the call: paths, each with the directory that it is relative to, or descriptors."""
    listed = [(arguments[at], key) for at, key in FILES.get(name, OF_ONE_FILE) if at < len(arguments)]
    found = [(file.fileno() if hasattr(file, "fileno") else file, options.get(key)) for file, key in listed]
    return [file if file[0] is not None else (".", None) for file in found] or [(".", None)]


@unwatched
def _spellings(root: str) -> set[str]:
    return {os.path.abspath(root), os.path.realpath(root)}


@unwatched
def _names_below(root: str) -> dict[Inode, str]:
    """The path below the root of each file that is there; empty if there is no root yet."""
    names: dict[Inode, str] = {}
    for folder, folders, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in (*folders, *files))):
            status = os.lstat(path)
            names.setdefault((status.st_dev, status.st_ino), os.path.relpath(path, root))
    return names
