"""Replaces the system calls with stand-ins, wherever a program keeps them and under any name.

`from os import fsync as sync`, a class attribute, a default argument, a closure or a partial took the function long
before the watch began. The garbage collector finds every such holder, which gets the stand-in until the watch ends. A
tuple cannot be changed, so calls through a function that is kept in one are not seen.

On pyfakefs `os` is an object with functions of its own. These are replaced there, and in the modules that have them.
"""

from __future__ import annotations

import builtins
import fcntl
import functools
import gc
import importlib
import inspect
import io
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any

Function = Callable[..., Any]

# The functions of `os` that are seen, and one of fcntl.
SEEN = (
    *("open", "close", "dup", "dup2", "lseek", "read", "readv", "pread", "preadv", "fsync", "fdatasync"),
    *("write", "writev", "pwrite", "pwritev", "sendfile", "copy_file_range", "posix_fallocate"),
    *("truncate", "ftruncate", "link", "symlink", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"),
    *("stat", "lstat", "fstat", "listdir", "scandir", "chmod", "fchmod"),
)
FLOCK = "flock"
CALLS = (*SEEN, FLOCK)
OPEN = "open()"

# These keywords can be passed on; others may name arguments that are expected by position.
KEYWORDS = frozenset({"dir_fd", "src_dir_fd", "dst_dir_fd", "follow_symlinks"})


@contextmanager
def handled(names: Iterable[str], handler_of: Callable[[str, Function], Function]) -> Iterator[None]:
    """Inside the block, callers of these functions, and of open(), call what `handler_of` returned.

    It gets the name of each function and what would be called without it.
    """
    with ExitStack() as stack:
        stack.enter_context(standing_by())
        for name in names:
            for stand_in in _stand_ins_of(name, stack):
                _handle(stand_in, functools.partial(handler_of, name), stack)
        if is_faked():
            _give_to_importers(stack)
            opened = handler_of(OPEN, builtins.open)
            stack.enter_context(replaced(builtins, "open", opened))
            stack.enter_context(replaced(io, "open", opened))
        else:
            _handle(_known[OPEN], functools.partial(handler_of, OPEN), stack)
        yield


def standing_by() -> AbstractContextManager[None]:
    """Inside the block, code that takes a function of `os` gets one that can be handled, which avoids a later search.

    Does nothing on pyfakefs, which has its own functions for each test.
    """
    if is_faked():
        return nullcontext()
    if not _known:
        system = importlib.import_module(os.name)
        _known.update({name: StandIn(getattr(system, name)) for name in SEEN if hasattr(system, name)})
        _known[FLOCK] = StandIn(fcntl.flock)
        _known[OPEN] = StandIn(io.open)
        _names.update({id(stand_in): name for name, stand_in in _known.items()})
    return _installed(list(_known.values()))


def is_faked() -> bool:
    """True while pyfakefs replaces the file system."""
    return not isinstance(os, types.ModuleType)


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


class StandIn:
    """Does what its function does, or what the last of `handlers` does. Created once, and never discarded.

    Not a function itself, since a function in a class would become a method. Equal to its function, so that it is
    found in os.supports_dir_fd.
    """

    def __init__(self, real: Function) -> None:
        self.real = real
        self.handlers: list[Function] = []
        self._signature: inspect.Signature | None = None
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(self, name, getattr(real, name, None))

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if not self.handlers:
            return self.real(*arguments, **options)
        if options and not options.keys() <= KEYWORDS:
            self._signature = self._signature or inspect.signature(self.real)
            bound = self._signature.bind(*arguments, **options)
            bound.apply_defaults()
            arguments, options = bound.args, bound.kwargs
        return self.handlers[-1](*arguments, **options)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self.real

    def __hash__(self) -> int:
        return hash(self.real)


_known: dict[str, StandIn] = {}  # for each of CALLS, and for open()
_names: dict[int, str] = {}  # the names of the known stand-ins, by id
_users = 0  # the last one removes the stand-ins
_holders: list[Any] = []  # the holders that have a stand-in now


@contextmanager
def _installed(stand_ins: list[StandIn]) -> Iterator[None]:
    """Inside the block, every holder of one of the functions calls its stand-in."""
    global _users  # noqa: PLW0603
    _users += 1
    try:
        if _users == 1:
            _install(stand_ins)
        yield
    finally:
        _users -= 1
        if not _users:
            back = {id(stand_in): stand_in.real for stand_in in stand_ins}  # not earlier: a search would find it
            while _holders:
                _substitute(_holders.pop(), back)


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


def _handle(stand_in: StandIn, handler_of: Callable[[Function], Function], stack: ExitStack) -> None:
    handler = handler_of(stand_in.handlers[-1] if stand_in.handlers else stand_in.real)
    stand_in.handlers.append(handler)
    stack.callback(stand_in.handlers.remove, handler)


def _give_to_importers(stack: ExitStack) -> None:
    """For pyfakefs, which gives its own functions to modules that imported some from `os`."""
    for module in list(sys.modules.values()):
        for alias, value in list(getattr(module, "__dict__", {}).items()):
            if isinstance(value, types.MethodType) and value.__self__ is os:
                stand_in = getattr(os, value.__name__)
                if isinstance(stand_in, StandIn):
                    stack.enter_context(replaced(module, alias, stand_in))


def _install(stand_ins: Iterable[StandIn]) -> None:
    table = {id(stand_in.real): stand_in for stand_in in stand_ins}
    own = {id(vars(stand_in)) for stand_in in stand_ins} | {id(stand_in) for stand_in in stand_ins}
    with _all_objects_listed():
        for referrer in gc.get_referrers(*(stand_in.real for stand_in in stand_ins)):
            if id(referrer) not in own:
                _holders.extend(holder for holder in _holders_behind(referrer) if _substitute(holder, table))


@contextmanager
def _all_objects_listed() -> Iterator[None]:
    """Unfreezes all objects, because the collector does not list frozen ones."""
    frozen = gc.get_freeze_count()
    if frozen:
        gc.unfreeze()
    try:
        yield
    finally:
        if frozen:
            gc.freeze()


def _holders_behind(referrer: Any) -> list[Any]:
    """The class behind its dict, or the function behind its defaults; in most cases the referrer itself."""
    if isinstance(referrer, tuple):
        return [one for one in gc.get_referrers(referrer) if isinstance(one, types.FunctionType)]
    if isinstance(referrer, dict) and "__module__" in referrer and "__doc__" in referrer:
        return [one for one in gc.get_referrers(referrer) if isinstance(one, type)] or [referrer]
    return [referrer]


def _substitute(holder: Any, table: Mapping[int, Any]) -> bool:
    """Replace every value in the holder whose id the table has. False if there is none, or it cannot be replaced."""
    if isinstance(holder, types.FunctionType):
        return _replaced(table, enumerate(holder.__defaults__ or ()), lambda at, new: _set_default(holder, at, new))
    if isinstance(holder, types.CellType):
        with suppress(ValueError):  # it has become empty
            return _replaced(table, [("", holder.cell_contents)], lambda _, new: setattr(holder, "cell_contents", new))
        return False
    if isinstance(holder, functools.partial):
        parts = (holder.args, holder.keywords, vars(holder))
        return _replaced(table, [("", holder.func)], lambda _, new: holder.__setstate__((new, *parts)))  # type: ignore[attr-defined]
    if isinstance(holder, staticmethod):
        return _replaced(table, [("", holder.__func__)], lambda _, new: holder.__init__(new))  # type: ignore[misc]
    if isinstance(holder, dict):
        return _replaced(table, holder.items(), holder.__setitem__)
    if isinstance(holder, list):
        return _replaced(table, enumerate(holder), holder.__setitem__)
    if isinstance(holder, type):
        return _replaced(table, vars(holder).items(), lambda name, new: setattr(holder, name, new))
    slots = [name for kind in type(holder).__mro__ for name, slot in vars(kind).items() if _is_slot(slot)]
    values = {name: getattr(holder, name, None) for name in slots} | dict(getattr(holder, "__dict__", {}))
    return _replaced(table, values.items(), lambda name, new: object.__setattr__(holder, name, new))


def _replaced(table: Mapping[int, Any], values: Iterable[tuple[Any, Any]], put: Callable[[Any, Any], object]) -> bool:
    found = [(key, table[id(value)]) for key, value in list(values) if id(value) in table]
    for key, new in found:
        put(key, new)
    return bool(found)


def _set_default(function: types.FunctionType, at: int, new: Any) -> None:
    defaults = list(function.__defaults__ or ())
    defaults[at] = new
    function.__defaults__ = tuple(defaults)


def _is_slot(slot: object) -> bool:
    return isinstance(slot, types.MemberDescriptorType)
