"""Checks, before anything is written, that JSON will give back every value exactly as it went in.

orjson would store NaN as null, a tuple as a list, an enum as its value, and read integers beyond 64 bits as
floats. This module refuses all of these, and reports the place of the value but never the value itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

import orjson

from .._interruption import pass_on_interruption
from .misfit import ANY_KEY, Mismatch

MAX_DEPTH = 200  # orjson writes 254 levels
LOWEST_INTEGER = -(2**63)
HIGHEST_INTEGER = 2**64 - 1

# Stored as they are. to_json notices what may still be wrong with them: a lone surrogate, or more than 64 bits.
AS_IS: frozenset[type] = frozenset({str, int, bool, type(None)})


class Fields(dict[str, Any]):
    """The members of a dataclass in plain data; the program knows those in `names`.

    Data is marked this way only to find the place of a mismatch, never on the way to a file.
    """

    def __init__(self, members: Mapping[str, Any], names: Iterable[str]) -> None:
        super().__init__(members)
        self.names = frozenset(names)


def to_json(plain: Any) -> bytes | None:
    """The JSON of plain data; None for text that is not Unicode, integers beyond 64 bits, or too deep a nesting."""
    try:
        return orjson.dumps(plain)
    except TypeError as error:
        pass_on_interruption(error)
        return None


def check_plain(value: Any) -> None:
    """Raise Mismatch unless `value` consists of JSON's types; to_json checks what AS_IS leaves open."""
    if not _is_plain(value, 0):
        raise first_mismatch(value)


def _is_plain(value: Any, depth: int) -> bool:
    if depth > MAX_DEPTH:
        return False
    if type(value) is dict:
        for name, member in value.items():
            if type(name) is not str:
                return False
            if type(member) not in AS_IS and not _is_plain(member, depth + 1):
                return False
        return True
    if type(value) is list:
        for member in value:  # noqa: SIM110  (a generator takes twice the time)
            if type(member) not in AS_IS and not _is_plain(member, depth + 1):
                return False
        return True
    return type(value) in AS_IS or (type(value) is float and isfinite(value))


def first_mismatch(*forms: Any) -> Mismatch:
    """The quick checks find that something is wrong but not where, so this searches each form of the data in turn."""
    for form in forms:
        for where, why in _complaints(form, "$", 0):
            return Mismatch(why, where)
    return Mismatch("cannot be stored as JSON")


def _complaints(value: Any, where: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > MAX_DEPTH:
        yield f"{where[:80]}…", f"is nested more than {MAX_DEPTH} levels deep, or contains itself"
    elif type(value) in (dict, Fields):
        for name, member in value.items():
            if type(name) is not str:
                yield where, f"has a key of type {type(name).__name__}; JSON keys are strings"
            elif _complaint(name):
                yield where, f"has a key that {_complaint(name)}"
            else:
                yield from _complaints(member, where + _step_to(name, value), depth + 1)
    elif type(value) is list:
        for index, member in enumerate(value):
            yield from _complaints(member, f"{where}[{index}]", depth + 1)
    elif complaint := _complaint(value):
        yield where, complaint


def _complaint(value: Any) -> str:
    """The reason why a value that is not a container cannot be stored; "" if it can."""
    kind = type(value)
    if kind is str:
        return "holds a lone surrogate, which is not Unicode text" if _has_surrogate(value) else ""
    if kind is int:
        fits = LOWEST_INTEGER <= value <= HIGHEST_INTEGER
        return "" if fits else "is an integer beyond 64 bits, which JSON readers turn into a float"
    if kind is float:
        return "" if isfinite(value) else "is not a finite number, which JSON cannot hold"
    if kind in AS_IS:
        return ""
    return f"is of type {kind.__name__}, which would not come back as it went in"


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _step_to(name: str, members: dict[str, Any]) -> str:
    return f".{name}" if isinstance(members, Fields) and name in members.names else ANY_KEY
