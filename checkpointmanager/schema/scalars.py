"""The codecs of single values: text, numbers, times, choices. Containers are in codec.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from .plain import HIGHEST_INTEGER, LOWEST_INTEGER, Mismatch, check_plain
from .unknown import Unknowns

Function = Callable[[Any, Unknowns], Any]
NONE = type(None)


@dataclass(frozen=True, slots=True)
class Codec:
    """How one type is stored. `python` and `json` are the types it takes on either side: unions choose by them."""

    encode: Function
    decode: Function
    python: frozenset[type]
    json: frozenset[type]


def expect(value: Any, cls: type) -> None:
    """Exactly this class: a subclass would not come back as itself."""
    if type(value) is not cls:
        raise Mismatch(f"is {type(value).__name__}, not {cls.__name__}")


def choices(by_plain: dict[tuple[type, Any], Any], name: str) -> Codec:
    """An Enum or a Literal: a fixed set of values, each stored as a JSON scalar.

    Keyed by type and value, because True equals 1.
    """
    if not all(cls in (str, int, bool, NONE) for cls, _ in by_plain):
        raise TypeError(f"{name}: only text, integers, booleans and None can be choices")
    by_choice = {(type(choice), choice): plain for (_, plain), choice in by_plain.items()}

    def chosen(table: dict[tuple[type, Any], Any]) -> Function:
        def choose(value: Any, _: Unknowns) -> Any:
            try:
                return table[type(value), value]
            except (KeyError, TypeError):
                raise Mismatch("is none of the declared choices") from None

        return choose

    python = frozenset(cls for cls, _ in by_choice)
    return Codec(chosen(by_choice), chosen(by_plain), python, frozenset(cls for cls, _ in by_plain))


def _exactly(cls: type) -> Codec:
    def same(value: Any, _: Unknowns) -> Any:
        if type(value) is not cls:
            raise Mismatch(f"is {type(value).__name__}, not {cls.__name__}")
        return value

    return Codec(same, same, frozenset({cls}), frozenset({cls}))


def _integer_to_plain(value: Any, _: Unknowns) -> Any:
    expect(value, int)
    if not LOWEST_INTEGER <= value <= HIGHEST_INTEGER:
        raise Mismatch("is an integer beyond 64 bits, which JSON readers turn into a float")
    return value


def _integer_from_plain(plain: Any, _: Unknowns) -> Any:
    expect(plain, int)
    return plain


def _number_to_plain(value: Any, _: Unknowns) -> Any:
    """An int is welcome where a float is declared, as type checkers allow, if it is the same number."""
    if type(value) is int and abs(value) <= 2**53:
        return float(value)
    expect(value, float)
    check_plain(value)
    return value


def _number_from_plain(plain: Any, _: Unknowns) -> Any:
    if type(plain) is int:
        return float(plain)
    expect(plain, float)
    return plain


def _time_to_plain(value: Any, _: Unknowns) -> Any:
    expect(value, datetime)
    if value.tzinfo is not None and type(value.tzinfo) is not timezone:
        raise Mismatch("is a time in a named zone, whose name would be lost; use value.astimezone(UTC)")
    if value.tzinfo is None and value.fold:
        raise Mismatch("is a time with fold=1 and no offset, which would be lost")
    return value.isoformat()


def _time_from_plain(plain: Any, _: Unknowns) -> Any:
    expect(plain, str)
    try:
        return datetime.fromisoformat(plain)
    except ValueError:
        raise Mismatch("is not a time in ISO 8601") from None


def _uuid_to_plain(value: Any, _: Unknowns) -> Any:
    expect(value, UUID)
    return str(value)


def _uuid_from_plain(plain: Any, _: Unknowns) -> Any:
    expect(plain, str)
    try:
        return UUID(plain)
    except ValueError:
        raise Mismatch("is not a UUID") from None


def _anything_to_plain(value: Any, _: Unknowns) -> Any:
    check_plain(value)
    return value


def _anything_from_plain(plain: Any, _: Unknowns) -> Any:
    return plain


_TEXT = frozenset({str})
FLOAT = Codec(_number_to_plain, _number_from_plain, frozenset({float, int}), frozenset({float, int}))
SCALARS: dict[type, Codec] = {
    str: _exactly(str),
    bool: _exactly(bool),
    NONE: _exactly(NONE),
    int: Codec(_integer_to_plain, _integer_from_plain, frozenset({int}), frozenset({int})),
    float: FLOAT,
    datetime: Codec(_time_to_plain, _time_from_plain, frozenset({datetime}), _TEXT),
    UUID: Codec(_uuid_to_plain, _uuid_from_plain, frozenset({UUID}), _TEXT),
}
_JSON: frozenset[type] = frozenset({str, bool, NONE, int, float, list, dict})
ANYTHING = Codec(_anything_to_plain, _anything_from_plain, _JSON, _JSON)
