"""Replaces a function with a stand-in, wherever a program keeps it and under any name.

`from os import fsync as sync`, a class attribute, a default argument, a closure or a partial took the function long
before the watch began. The garbage collector finds every such holder, which gets the stand-in until the watch ends. A
holder that cannot take one is an error: calls through it would never be seen.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

Function = Callable[..., Any]

# These keywords can be passed on; others may name arguments that are expected by position.
KEYWORDS = frozenset({"dir_fd", "src_dir_fd", "dst_dir_fd", "follow_symlinks"})
# Test tools keep functions to restore or show them. The members of a set are looked up, not called.
TOOLS = ("_pytest.", "pyfakefs.", "hypothesis.", "unittest.mock")
NEVER_CALLED = (set, frozenset, types.FrameType, types.GeneratorType)


class UnseenChange(Exception):
    """The directory was changed in a way that cannot be seen, so nothing can be proved about it.

    Make the change through `os`, open() or pathlib, in this process; the message names the file or the holder.
    """


class StandIn:
    """Does what its function does, or what the last of `handlers` does. Created once, and never discarded.

    Not a function itself, since a function in a class would become a method. Equal to its function, so that it is
    found in os.supports_dir_fd.
    """

    def __init__(self, real: Function) -> None:
        self.real = real
        self.handlers: list[Function] = []
        self._signature: inspect.Signature | None = None
        self.settled = 0  # the number of references when all were accounted for
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


_installed = 0  # the number of users: the last one removes the stand-ins
_holders: list[Any] = []  # the holders that have a stand-in now
_remembered: list[Callable[[], Any]] = []  # holders found before, each as a function that returns it or None


@contextmanager
def standing_in(stand_ins: Iterable[StandIn]) -> Iterator[None]:
    """Inside the block, every holder of one of the functions calls its stand-in."""
    global _installed  # noqa: PLW0603
    there = {id(stand_in.real): stand_in for stand_in in stand_ins}
    _installed += 1
    try:
        if _installed == 1:
            _install(there)
        yield
    finally:
        _installed -= 1
        if not _installed:
            back = {id(stand_in): stand_in.real for stand_in in there.values()}  # not earlier: a search would find it
            while _holders:
                exchange(_holders.pop(), back)


def exchange(holder: Any, table: Mapping[int, Any]) -> bool:
    """Replace every value in the holder whose id the table has. False if there is none, or it cannot be replaced."""
    if isinstance(holder, types.FunctionType):
        return _exchanged(table, enumerate(holder.__defaults__ or ()), lambda at, new: _set_default(holder, at, new))
    if isinstance(holder, types.CellType):
        with suppress(ValueError):  # it has become empty
            return _exchanged(table, [("", holder.cell_contents)], lambda _, new: setattr(holder, "cell_contents", new))
        return False
    if isinstance(holder, functools.partial):
        parts = (holder.args, holder.keywords, vars(holder))
        return _exchanged(table, [("", holder.func)], lambda _, new: holder.__setstate__((new, *parts)))  # type: ignore[attr-defined]
    if isinstance(holder, staticmethod):
        return _exchanged(table, [("", holder.__func__)], lambda _, new: holder.__init__(new))  # type: ignore[misc]
    if isinstance(holder, dict):
        return _exchanged(table, holder.items(), holder.__setitem__)
    if isinstance(holder, list):
        return _exchanged(table, enumerate(holder), holder.__setitem__)
    if isinstance(holder, type):
        return _exchanged(table, vars(holder).items(), lambda name, new: setattr(holder, name, new))
    slots = [name for kind in type(holder).__mro__ for name, slot in vars(kind).items() if _is_slot(slot)]
    values = {name: getattr(holder, name, None) for name in slots} | dict(getattr(holder, "__dict__", {}))
    return _exchanged(table, values.items(), lambda name, new: object.__setattr__(holder, name, new))


def _exchanged(table: Mapping[int, Any], values: Iterable[tuple[Any, Any]], put: Callable[[Any, Any], object]) -> bool:
    found = [(key, table[id(value)]) for key, value in list(values) if id(value) in table]
    for key, new in found:
        put(key, new)
    return bool(found)


def _install(there: Mapping[int, StandIn]) -> None:
    """Checks earlier holders first, which is quick, and searches all objects only if there are more references."""
    for remembered in list(_remembered):
        holder = remembered()
        if holder is None:
            _remembered.remove(remembered)
        elif exchange(holder, there):
            _holders.append(holder)
    taken = _taken(there)
    if taken:
        refusal = _search(taken)
        if refusal or _taken(taken):  # the rest may belong to an earlier test and wait to be freed, or be frozen
            with _thawed():
                gc.collect()
                refusal = _search(taken)
        if refusal:
            raise UnseenChange(refusal)
    for stand_in in there.values():
        stand_in.settled = sys.getrefcount(stand_in.real)


def _taken(there: Mapping[int, StandIn]) -> dict[int, StandIn]:
    """The stand-ins whose functions have more references than when all were accounted for."""
    return {key: one for key, one in there.items() if sys.getrefcount(one.real) > one.settled}


@contextmanager
def _thawed() -> Iterator[None]:
    """Unfreezes all objects, because the collector does not list frozen ones."""
    frozen = gc.get_freeze_count()
    if frozen:
        gc.unfreeze()
    try:
        yield
    finally:
        if frozen:
            gc.freeze()


def _search(there: Mapping[int, StandIn]) -> str:
    """Give every holder its stand-in. Returns why a holder that cannot take one matters, or ""."""
    refusal = ""
    own = {id(part) for stand_in in there.values() for part in (stand_in, vars(stand_in))} | {id(there), id(_holders)}
    found = gc.get_referrers(*tuple(stand_in.real for stand_in in there.values()))
    own.add(id(found))
    for referrer in found:
        if id(referrer) not in own and not isinstance(referrer, NEVER_CALLED):
            behind = _holders_behind(referrer)
            for holder in behind:
                if exchange(holder, there):
                    _holders.append(holder)
                    _remember(holder)
                elif not _is_harmless(referrer, own | {id(behind)}):
                    refusal = _refusal(referrer, there)
    return refusal


def _holders_behind(referrer: Any) -> list[Any]:
    """The class behind its dict, or the function behind its defaults; in most cases the referrer itself."""
    if isinstance(referrer, tuple):
        functions = [one for one in gc.get_referrers(referrer) if isinstance(one, types.FunctionType)]
        return functions or [referrer]
    if isinstance(referrer, dict) and "__module__" in referrer and "__doc__" in referrer:
        return [one for one in gc.get_referrers(referrer) if isinstance(one, type)] or [referrer]
    return [referrer]


def _remember(holder: Any) -> None:
    """Remember a holder, but only in a way that keeps no object of a test alive."""
    if isinstance(holder, types.CellType) or (isinstance(holder, dict) and "__spec__" in holder):
        _remembered.append(lambda: holder)
    elif isinstance(holder, dict):
        _remember_owner(holder)
    else:
        with suppress(TypeError):  # not all objects have weak references
            _remembered.append(weakref.ref(holder))


def _remember_owner(holder: dict[Any, Any]) -> None:
    """Remembers the owner of an object's dict, or of a function's defaults."""
    for owner in gc.get_referrers(holder):
        for attribute in ("__dict__", "__kwdefaults__"):
            if getattr(owner, attribute, None) is holder:
                with suppress(TypeError):
                    _remembered.append(_attribute_of(weakref.ref(owner), attribute))
                    return


def _attribute_of(owner: Callable[[], Any], attribute: str) -> Callable[[], Any]:
    return lambda: getattr(owner(), attribute, None)


def _is_harmless(referrer: Any, own: Container[int]) -> bool:
    """True for a patcher's note of what to restore (its module comes first), or if only test tools or loops hold it."""
    if isinstance(referrer, tuple) and referrer and isinstance(referrer[0], types.ModuleType):
        return True
    if referrer is sys.modules.get("_zoneinfo"):  # C code that keeps open() to read time zones, since Python 3.12
        return True
    behind = [one for one in gc.get_referrers(referrer) if id(one) not in own and not isinstance(one, NEVER_CALLED)]
    return _is_of_tools(referrer) or all(_is_of_tools(one) or _is_iterator(one) for one in behind)


def _is_of_tools(thing: Any) -> bool:
    return type(thing).__module__.startswith(TOOLS)


def _is_iterator(thing: Any) -> bool:
    return type(thing).__name__.endswith("_iterator")


def _refusal(referrer: Any, there: Mapping[int, StandIn]) -> str:
    names = sorted({there[id(held)].real.__name__ for held in gc.get_referents(referrer) if id(held) in there})
    return (
        f"a {type(referrer).__name__} holds {', '.join(names)}, and calls through it cannot be seen. "
        "Call it as a function of `os`, or keep it in a module, class, object, list or dict"
    )


def _set_default(function: types.FunctionType, at: int, new: Any) -> None:
    defaults = list(function.__defaults__ or ())
    defaults[at] = new
    function.__defaults__ = tuple(defaults)


def _is_slot(slot: object) -> bool:
    return isinstance(slot, types.MemberDescriptorType)
