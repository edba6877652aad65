"""Wraps the system calls of a program, and always unwraps them again.

On pyfakefs `os` is a stand-in with the same functions, so the same code works there.
"""

from __future__ import annotations

import builtins
import fcntl
import importlib
import io
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import wraps
from types import MethodType, ModuleType
from typing import Any, TypeVar

from ._standins import Function, StandIn, standing_in

Wrap = Callable[[str, Function], Function]  # the call's name and the real function -> what is called in its place
Inode = tuple[int, int]  # a file's device and inode: the same for all its names and descriptors

# The functions of `os` that are seen, and one of fcntl.
SEEN = (
    *("open", "close", "dup", "dup2", "lseek", "read", "readv", "pread", "preadv", "fsync", "fdatasync"),
    *("write", "writev", "pwrite", "pwritev", "sendfile", "copy_file_range", "posix_fallocate"),
    *("truncate", "ftruncate", "link", "symlink", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"),
    *("stat", "lstat", "fstat", "listdir", "scandir", "chmod", "fchmod"),
)
FLOCK = "flock"
CALLS = (*SEEN, FLOCK)

F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def wrapped(names: Iterable[str], wrap: Wrap, opening: Callable[[Function], Function]) -> Iterator[None]:
    """Inside the block, callers of these functions call what `wrap` returned, and open() is that of `opening`.

    Calls that a real function or a wrapper makes itself are not seen.
    """
    busy = threading.local()  # `now` while this thread is inside a wrapper
    with ExitStack() as stack:
        stack.enter_context(standing_by())
        for name in names:
            for stand_in in _stand_ins_of(name, stack):
                _handle(stand_in, _outermost(wrap, name, _last(stand_in), busy), stack)
        if is_faked():
            _give_to_importers(stack)
        _open_by(opening, stack)
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Like mock.patch.object: an attribute that the owner only inherits is deleted afterwards, not copied."""
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def is_faked() -> bool:
    """True while pyfakefs replaces the file system."""
    return not isinstance(os, ModuleType)


def unwatched(function: F) -> F:
    """Decorates what the kit does for itself: no watch sees the calls that it makes."""

    @wraps(function)
    def call(*arguments: Any) -> Any:
        before, _own_work.now = getattr(_own_work, "now", False), True
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


_own_work = threading.local()  # `now` while this thread works for the kit
_known: dict[str, StandIn] = {}  # for each of CALLS, and for open()
_names: dict[int, str] = {}  # the names of the known stand-ins, by id


def standing_by() -> AbstractContextManager[None]:
    """Inside the block, code that takes a function of `os` gets one that can be wrapped, which avoids a later search.

    Does nothing on pyfakefs, which has its own functions for each test.
    """
    if is_faked():
        return nullcontext()
    if not _known:
        system = importlib.import_module(os.name)
        _known.update({name: StandIn(getattr(system, name)) for name in SEEN if hasattr(system, name)})
        _known[FLOCK] = StandIn(fcntl.flock)
        _known["open()"] = StandIn(io.open)
        _names.update({id(stand_in): name for name, stand_in in _known.items()})
    return standing_in(_known.values())


def _stand_ins_of(name: str, stack: ExitStack) -> Iterator[StandIn]:
    """The stand-in of the real function, and another if a test has replaced the function in `os` with its own."""
    home: Any = fcntl if name == FLOCK else os
    if not hasattr(home, name):
        return
    if not is_faked():
        yield _known[name]
    there = getattr(home, name)
    is_of_another = _names.get(id(there), name) != name  # os.fsync may be os.fstat
    if is_of_another or not isinstance(there, StandIn):
        there = StandIn(there)
        stack.enter_context(replaced(home, name, there))
    if there is not _known.get(name):
        yield there


def _give_to_importers(stack: ExitStack) -> None:
    """For pyfakefs, which gives its own functions to modules that imported some from `os`."""
    for module in list(sys.modules.values()):
        for alias, value in list(getattr(module, "__dict__", {}).items()):
            if isinstance(value, MethodType) and value.__self__ is os:
                stand_in = getattr(os, value.__name__)
                if isinstance(stand_in, StandIn):
                    stack.enter_context(replaced(module, alias, stand_in))


def _outermost(wrap: Wrap, name: str, below: Function, busy: Any) -> Function:
    wrapper = wrap(name, below)

    def call(*arguments: Any, **options: Any) -> Any:
        if getattr(busy, "now", False) or getattr(_own_work, "now", False):
            return below(*arguments, **options)
        busy.now = True
        try:
            return wrapper(*arguments, **options)
        finally:
            busy.now = False

    return call


def _last(stand_in: StandIn) -> Function:
    return stand_in.handlers[-1] if stand_in.handlers else stand_in.real


def _handle(stand_in: StandIn, handler: Function, stack: ExitStack) -> None:
    stand_in.handlers.append(handler)
    stack.callback(stand_in.handlers.remove, handler)


def _open_by(opening: Callable[[Function], Function], stack: ExitStack) -> None:
    if is_faked():
        opened = opening(builtins.open)
        stack.enter_context(replaced(builtins, "open", opened))
        stack.enter_context(replaced(io, "open", opened))
    else:
        stand_in = _known["open()"]
        _handle(stand_in, opening(_last(stand_in)), stack)
