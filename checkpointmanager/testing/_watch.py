"""Sees every call to the operating system that concerns one directory, and lets somebody stand in between."""

from __future__ import annotations

import builtins
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from ._files import open_recorded
from ._oscalls import EXCHANGE, EXCHANGES, descriptors_of, is_below, replaced, wrapped

CALLS = (
    *("open", "close", "read", "write", "pwrite", "fsync", "fdatasync", "truncate", "ftruncate", "lseek"),
    *("link", "symlink", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"),
    *("stat", "lstat", "fstat", "listdir", "scandir", "chmod", "fchmod"),
)
# Functions that reach the kernel past `os`, and what the call is.
PAST_OS = {**dict.fromkeys(EXCHANGES, EXCHANGE), "checkpointmanager._filestore.system.fcntl_at_once": "fcntl"}
NAMES = {"link": slice(2), "rename": slice(2), "replace": slice(2), EXCHANGE: slice(1, 3)}  # among the arguments
SYNCS = frozenset({"fsync", "fdatasync"})


class Call(NamedTuple):
    """A call of `os`, and the names that it was about: of a descriptor, what it was opened as."""

    name: str
    about: str

    def __str__(self) -> str:
        return f"{self.name} {self.about}"


Make = Callable[..., Any]  # makes the call; with other arguments if it is given any
Around = Callable[[Call, Make, tuple[Any, ...]], Any]  # gets the call and its arguments, answers in its place


class Watch:
    """Hands each call that concerns what is in `root` to `around`, in the thread that makes it."""

    def __init__(self, root: str, around: Around) -> None:
        self._roots = {os.path.abspath(root), os.path.realpath(root)}
        self._around = around
        self.open = _opened_before(root)  # descriptor -> what it is of
        self.opened_before = frozenset(self.open)
        self.repeated_syncs: list[Call] = []  # of a descriptor whose sync had failed: such a sync says nothing
        self._failed_syncs: set[int] = set()
        self._thread = threading.local()  # `busy` while a call is met: what it does itself is no call of the program

    @contextmanager
    def watching(self) -> Iterator[None]:
        opening = partial(open_recorded, self, builtins.open)
        with (
            wrapped(CALLS, self._wrap, PAST_OS),
            replaced(builtins, "open", opening),
            replaced(io, "open", opening),
        ):
            yield

    def concerns(self, file: Any, dir_fd: int | None = None) -> bool:
        if isinstance(file, int):
            return file in self.open
        if dir_fd is not None and not os.path.isabs(file):
            return dir_fd in self.open
        path = os.path.abspath(os.fsdecode(file))
        return any(is_below(path, root) for root in self._roots)

    @property
    def _busy(self) -> bool:
        return getattr(self._thread, "busy", False)

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            file: Any = arguments[0] if arguments else "."
            if self._busy or not self.concerns(file, options.get("dir_fd", options.get("src_dir_fd"))):
                return real(*arguments, **options)
            met = Call(name, self._about(name, arguments))

            def make(*others: Any) -> Any:
                if name == "close":
                    self.open.pop(file, None)
                    self._failed_syncs.discard(file)
                result = real(*(others or arguments), **options)
                if name == "open":
                    self.open[result] = met.about
                return result

            return self._met(met, make, arguments)

        return call

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

    def _about(self, name: str, arguments: tuple[Any, ...]) -> str:
        named = arguments[NAMES.get(name, slice(1))]
        return " ".join(self.open.get(part, str(part)) if isinstance(part, int) else str(part) for part in named)


@contextmanager
def watching(
    directory: str | os.PathLike[str],
    *,
    before: Callable[[Call], object] | None = None,
    after: Callable[[Call], object] | None = None,
) -> Iterator[list[Call]]:
    """Inside, every call that concerns what is in `directory` is added to the list just before it is made.

    `before` and `after` are called around each, in the thread that makes it; `after` only if it did not fail. What
    they do themselves is not seen.
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


def _opened_before(root: str) -> dict[int, str]:
    """What is open already, by its path from the root; nothing if the root does not exist yet."""
    paths: dict[tuple[int, int], str] = {}
    for folder, folders, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in (*folders, *files))):
            status = os.lstat(path)
            paths.setdefault((status.st_dev, status.st_ino), os.path.relpath(path, root))
    return {number: paths[inode] for number, inode in descriptors_of(paths).items()}
