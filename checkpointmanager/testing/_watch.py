"""Sees every system call on files below one directory, and lets a function act in place of the call."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from ._files import open_recorded
from ._oscalls import EXCHANGE, EXCHANGES, OF_TWO_DESCRIPTORS, SEEN, descriptors_of, is_below, path_of, wrapped

CALLS = tuple(name for name in SEEN if name != "sync")  # sync cannot fail, and names no directory
LEASES = {"checkpointmanager._filestore.system.fcntl_at_once": "fcntl"}  # reaches the kernel past `os`
SYNCS = frozenset({"fsync", "fdatasync"})

# The arguments that are files, each with its keyword; by default the first argument, with dir_fd.
FILES: dict[str, tuple[tuple[int, str], ...]] = {
    **dict.fromkeys(("link", "rename", "replace"), ((0, "src_dir_fd"), (1, "dst_dir_fd"))),
    **dict.fromkeys(OF_TWO_DESCRIPTORS, ((0, ""), (1, ""))),
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
Around = Callable[[Call, Make, tuple[Any, ...]], Any]  # gets the call and its arguments, returns in its place


class Watch:
    """Passes each call on files below `root` to `around`, in the thread that makes it."""

    def __init__(self, root: str, around: Around, exchanges: Iterable[str] = EXCHANGES) -> None:
        self._roots = {os.path.abspath(root), os.path.realpath(root)}
        self._around = around
        self._past_os = {**dict.fromkeys(exchanges, EXCHANGE), **LEASES}
        self.open = _opened_before(root)  # descriptor -> the name of its file
        self.opened_before = frozenset(self.open)
        self.repeated_syncs: list[Call] = []  # of a descriptor whose sync had failed: such a sync proves nothing
        self._failed_syncs: set[int] = set()
        self._thread = threading.local()  # `busy` while `around` runs: what it does itself is not a call of the program

    @contextmanager
    def watching(self) -> Iterator[None]:
        with wrapped(CALLS, self._wrap, self._past_os, partial(partial, open_recorded, self)):
            yield

    def concerns(self, file: Any, dir_fd: int | None = None) -> bool:
        if isinstance(file, int):
            return self._name_of(file) is not None
        if dir_fd is not None and not os.path.isabs(file):
            return self._name_of(dir_fd) is not None
        path = os.path.abspath(os.fsdecode(file))
        return any(is_below(path, root) for root in self._roots)

    def _name_of(self, descriptor: int) -> str | None:
        """The name of a descriptor's file. Also finds descriptors created unseen, by fcntl for instance."""
        if descriptor not in self.open:
            path = path_of(descriptor)
            for root in self._roots:
                if is_below(path, root):
                    self.open[descriptor] = os.path.relpath(path, root)
        return self.open.get(descriptor)

    @property
    def _busy(self) -> bool:
        return getattr(self._thread, "busy", False)

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            files = _files(name, arguments, options)
            if self._busy or not any(self.concerns(*file) for file in files):
                if name == "close":
                    self.open.pop(arguments[0], None)
                return real(*arguments, **options)
            met = Call(name, " ".join(self._text(file) for file, _ in files))

            def make(*others: Any) -> Any:
                if name == "close":
                    self.open.pop(arguments[0], None)
                    self._failed_syncs.discard(arguments[0])
                result = real(*(others or arguments), **options)
                if name in ("open", "dup", "dup2"):
                    self._opened(result, met.about if name == "open" else self._name_of(arguments[0]))
                return result

            return self._met(met, make, arguments)

        return call

    def _opened(self, descriptor: int, name: str | None) -> None:
        self.open.pop(descriptor, None)
        if name is not None:
            self.open[descriptor] = name

    def _text(self, file: Any) -> str:
        return self._name_of(file) or str(file) if isinstance(file, int) else os.fsdecode(file)

    def _met(self, call: Call, make: Make, arguments: tuple[Any, ...]) -> Any:
        syncs = call.name in SYNCS
        if syncs and arguments[0] in self._failed_syncs:
            self.repeated_syncs.append(call)
        self._thread.busy = True
        try:
            return self._around(call, make, arguments)
        except OSError:
            if syncs:
                self._failed_syncs.add(arguments[0])
            raise
        finally:
            self._thread.busy = False


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

    def around(call: Call, make: Make, _: tuple[Any, ...]) -> Any:
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
    if name == EXCHANGE:
        directory, *names = arguments
        return [(one, directory) for one in names]
    listed = [(arguments[at], key) for at, key in FILES.get(name, OF_ONE_FILE) if at < len(arguments)]
    found = [(file.fileno() if hasattr(file, "fileno") else file, options.get(key)) for file, key in listed]
    return [file if file[0] is not None else (".", None) for file in found] or [(".", None)]


def _opened_before(root: str) -> dict[int, str]:
    """The descriptors that are already open, with their paths below the root; empty if there is no root yet."""
    paths: dict[tuple[int, int], str] = {}
    for folder, folders, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in (*folders, *files))):
            status = os.lstat(path)
            paths.setdefault((status.st_dev, status.st_ino), os.path.relpath(path, root))
    return {number: paths[inode] for number, inode in descriptors_of(paths).items()}
