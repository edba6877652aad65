"""Wraps the system calls of a program, and always unwraps them again.

On pyfakefs `os` is a stand-in with the same functions, so the same code works there.
"""

from __future__ import annotations

import builtins
import importlib
import io
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from types import MethodType, ModuleType
from typing import Any

from ._standins import Function, StandIn, standing_in

Wrap = Callable[[str, Function], Function]  # the call's name and the real function -> what is called in its place

# Functions that bypass `os`: they take the descriptor of a directory and swap two names in it (renameat2).
EXCHANGES = ("checkpointmanager._filestore.system.exchange",)
EXCHANGE = "exchange"

# Every function of `os` that may be wrapped.
SEEN = (
    *("open", "close", "dup", "dup2", "lseek", "read", "readv", "pread", "preadv", "fsync", "fdatasync", "sync"),
    *("write", "writev", "pwrite", "pwritev", "sendfile", "copy_file_range", "splice", "posix_fallocate"),
    *("truncate", "ftruncate", "link", "symlink", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"),
    *("stat", "lstat", "fstat", "listdir", "scandir", "chmod", "fchmod"),
)


OF_TWO_DESCRIPTORS = frozenset({"dup2", "sendfile", "copy_file_range", "splice"})


@contextmanager
def wrapped(
    names: Iterable[str], wrap: Wrap, past_os: Mapping[str, str], opening: Callable[[Function], Function]
) -> Iterator[None]:
    """Inside the block, callers of these functions of `os` call what `wrap` returned, and open() is that of `opening`.

    The same applies to functions in `past_os` that exist: it has their dotted names and the names of the calls that
    they make. Calls that a real function makes itself (as those of pyfakefs do) are not seen.
    """
    quiet = threading.local()
    with ExitStack() as stack:
        stack.enter_context(standing_by())
        for name in names:
            for stand_in in _stand_ins_of(name, stack):
                _handle(stand_in, _heard(wrap, name, _last(stand_in), quiet), stack)
        if is_faked():
            _give_to_importers(stack)
        _open_by(opening, stack)
        found = [(real, name) for dotted, name in past_os.items() if (real := _found(dotted)) is not None]
        _replace_everywhere([(real, wrap(name, real)) for real, name in found], stack)
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


def descriptors_of(inodes: Iterable[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """The open descriptors of these (device, inode) pairs: those that were opened before the watch began."""
    wanted = set(inodes)
    found: dict[int, tuple[int, int]] = {}
    for descriptor in _descriptors():
        with suppress(OSError):
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) in wanted:
                found[descriptor] = (status.st_dev, status.st_ino)
    return found


def path_of(descriptor: int) -> str:
    """The path that a descriptor was opened as; "" if the kernel does not say."""
    with suppress(OSError):
        return "" if is_faked() else os.readlink(f"/proc/self/fd/{descriptor}")
    return ""


def is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _descriptors() -> list[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return [int(name) for name in os.listdir(folder)]
    return list(range(3, 256))  # pyfakefs, whose first three are not files


_known: dict[str, StandIn] = {}  # for each of SEEN, and for open()
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
        _known["open()"] = StandIn(io.open)
        _names.update({id(stand_in): name for name, stand_in in _known.items()})
    return standing_in(_known.values())


def _stand_ins_of(name: str, stack: ExitStack) -> Iterator[StandIn]:
    """The stand-in of the real function, and another if a test has replaced the function in `os` with its own."""
    if not hasattr(os, name):
        return
    if not is_faked():
        yield _known[name]
    there = getattr(os, name)
    is_of_another = _names.get(id(there), name) != name  # os.fsync may be os.fstat
    if is_of_another or not isinstance(there, StandIn):
        there = StandIn(there)
        stack.enter_context(replaced(os, name, there))
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


def _heard(wrap: Wrap, name: str, below: Function, quiet: Any) -> Function:
    def quietly(*arguments: Any, **options: Any) -> Any:
        quiet.now = True
        try:
            return below(*arguments, **options)
        finally:
            quiet.now = False

    wrapper = wrap(name, quietly)

    def call(*arguments: Any, **options: Any) -> Any:
        return (below if getattr(quiet, "now", False) else wrapper)(*arguments, **options)

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


def _found(dotted: str) -> Function | None:
    module, _, name = dotted.rpartition(".")
    try:
        function: Function | None = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return function


def _replace_everywhere(pairs: Iterable[tuple[Function, Function]], stack: ExitStack) -> None:
    """Replace each function with its wrapper, in every module of its package and under any name."""
    by_package: dict[str, dict[int, Function]] = {}
    for real, wrapper in pairs:
        by_package.setdefault(real.__module__.partition(".")[0], {})[id(real)] = wrapper
    for package, wrappers in by_package.items():
        below = f"{package}."
        for module in [value for name, value in list(sys.modules.items()) if f"{name}.".startswith(below)]:
            for name in [name for name, value in list(vars(module).items()) if id(value) in wrappers]:
                stack.enter_context(replaced(module, name, wrappers[id(getattr(module, name))]))
