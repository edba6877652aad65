"""Replaces a function with a stand-in, wherever a program keeps it and under any name.

`from os import fsync as sync`, a class attribute, a default argument, a closure or a partial took the function long
before the watch began. The garbage collector finds every such holder, which gets the stand-in until the watch ends. A
tuple cannot be changed, so calls through a function that is kept in one are not seen.
"""

from __future__ import annotations

import functools
import gc
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

Function = Callable[..., Any]

# These keywords can be passed on; others may name arguments that are expected by position.
KEYWORDS = frozenset({"dir_fd", "src_dir_fd", "dst_dir_fd", "follow_symlinks"})


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


_users = 0  # the last one removes the stand-ins
_holders: list[Any] = []  # the holders that have a stand-in now


@contextmanager
def standing_in(stand_ins: Iterable[StandIn]) -> Iterator[None]:
    """Inside the block, every holder of one of the functions calls its stand-in."""
    global _users  # noqa: PLW0603
    there = list(stand_ins)
    _users += 1
    try:
        if _users == 1:
            _install(there)
        yield
    finally:
        _users -= 1
        if not _users:
            back = {id(stand_in): stand_in.real for stand_in in there}  # not earlier: a search would find it
            while _holders:
                substitute(_holders.pop(), back)


def _install(stand_ins: Iterable[StandIn]) -> None:
    table = {id(stand_in.real): stand_in for stand_in in stand_ins}
    own = {id(vars(stand_in)) for stand_in in stand_ins} | {id(stand_in) for stand_in in stand_ins}
    with _all_objects_listed():
        for referrer in gc.get_referrers(*(stand_in.real for stand_in in stand_ins)):
            if id(referrer) not in own:
                _holders.extend(holder for holder in _holders_behind(referrer) if substitute(holder, table))


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


def substitute(holder: Any, table: Mapping[int, Any]) -> bool:
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
