"""The codecs of single values: text, numbers, times, addresses, choices. Containers are in codec.py."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import Path, PurePath, PurePosixPath
from sys import intern
from typing import Annotated, Any
from uuid import UUID

from .._interruption import pass_on_interruption
from .jsonvalues import AS_IS, HIGHEST_INTEGER, LOWEST_INTEGER, check_plain
from .misfit import Mismatch
from .unknown import Unknowns, Values

Function = Callable[[Any, Unknowns], Any]
Tags = Mapping[str, Values]  # the Literal fields of a dataclass, and the values of each
NONE = type(None)
SharedText = Annotated[str, "checkpointmanager.shared"]
"""The type of fields whose text many objects have in common: memory holds each such text once."""
ADDRESSES = (IPv4Address, IPv4Network, IPv4Interface, IPv6Address, IPv6Network, IPv6Interface)
_DECIMAL = re.compile("0|-?[1-9][0-9]{0,19}")  # no plus, no leading zero, only ASCII digits
ADVICE = "declare it with another type, or give the schema encode= and decode="


@dataclass(frozen=True, slots=True)
class Codec:
    """How one type is stored. `python` and `json` are the types accepted on either side; unions choose by them.

    Values whose type is in `as_is` are the same on both sides, so containers need not call the codec for them.
    """

    encode: Function
    decode: Function
    python: frozenset[type]
    json: frozenset[type]
    as_is: frozenset[type] = frozenset()
    shared: bool = False  # the values are text, and reading keeps each text in memory once
    tags: Tags | None = None  # of a dataclass
    colons: bool | None = None  # of an IP address, network or interface: whether its text has them


def expect(value: Any, cls: type) -> None:
    """Raise Mismatch unless the value has exactly this class: a subclass would not come back as itself."""
    if type(value) is not cls:
        raise not_a(cls, value)


def not_a(cls: type, value: Any) -> Mismatch:
    return Mismatch(f"is {type(value).__name__}, not {cls.__name__}")


def choices(by_plain: dict[tuple[type, Any], Any], name: str) -> Codec:
    """The codec of an Enum or a Literal: a fixed set of values, each stored as a JSON scalar.

    The table has both type and value as its key, because True equals 1.
    """
    if not all(cls in (str, int, bool, NONE) for cls, _ in by_plain):
        raise TypeError(f"{name}: only text, integers, booleans and None can be choices; {ADVICE}")
    by_choice = {(type(choice), choice): plain for (_, plain), choice in by_plain.items()}

    def chosen(table: dict[tuple[type, Any], Any]) -> Function:
        def choose(value: Any, _: Unknowns) -> Any:
            try:
                return table[type(value), value]
            except (KeyError, TypeError) as error:
                pass_on_interruption(error)
                raise Mismatch("is none of the declared choices") from None

        return choose

    python = frozenset(cls for cls, _ in by_choice)
    return Codec(chosen(by_choice), chosen(by_plain), python, frozenset(cls for cls, _ in by_plain))


def as_key(codec: Codec) -> Codec | None:
    """The codec of the same values as keys of a dict; None if they cannot be keys.

    Keys are text in JSON. Integers are written in decimal, as Go does, and read in that one spelling only, so that
    no two keys mean the same.
    """
    if codec.json == {str}:
        return codec
    if codec.json != {int}:
        return None

    def spell(value: Any, unknowns: Unknowns) -> Any:
        number = codec.encode(value, unknowns)
        if not LOWEST_INTEGER <= number <= HIGHEST_INTEGER:
            raise Mismatch("is an integer beyond 64 bits")
        return str(number)

    def parse(plain: Any, unknowns: Unknowns) -> Any:
        expect(plain, str)
        number = int(plain) if _DECIMAL.fullmatch(plain) else None
        if number is None or not LOWEST_INTEGER <= number <= HIGHEST_INTEGER:
            raise Mismatch("is not an integer of 64 bits in plain decimal digits")
        return codec.decode(number, unknowns)

    return Codec(spell, parse, codec.python, frozenset({str}))


def _exactly(cls: type) -> Codec:
    def same(value: Any, _: Unknowns) -> Any:
        expect(value, cls)
        return value

    only = frozenset({cls})
    return Codec(same, same, only, only, only)


def _number_to_plain(value: Any, _: Unknowns) -> Any:
    """Accepts an int where a float is declared, as type checkers do, if the float is the same number."""
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
    zone = value.tzinfo
    if zone is not None and (type(zone) is not timezone or not zone.tzname(None).startswith("UTC")):
        raise Mismatch("is a time in a named zone, whose name would be lost; use value.astimezone(UTC)")
    if value.fold:
        raise Mismatch("is a time with fold=1, which would be lost")
    if zone is not None and timedelta(0) < abs(zone.utcoffset(None)) < timedelta(seconds=1):  # would be read as UTC
        raise Mismatch("is a time with an offset from UTC of less than a second, which would be lost")
    return value.isoformat()


def _spelled(cls: type, spell: Callable[[Any], str], parse: Callable[[str], Any]) -> Codec:
    """The codec of a type that is stored as text, and read in the one spelling that `spell` gives it."""

    def to_plain(value: Any, _: Unknowns) -> Any:
        expect(value, cls)
        return spell(value)

    def from_plain(plain: Any, unknowns: Unknowns) -> Any:
        value = parsed(plain, unknowns)
        if spell(value) != plain:
            raise Mismatch(f"is not {name}")
        return value

    name = f"the canonical form of any {cls.__name__}"
    parsed = _parsed(parse, name)
    return Codec(to_plain, from_plain, frozenset({cls}), _TEXT)


def _parsed(parse: Callable[[str], Any], name: str) -> Function:
    def from_plain(plain: Any, _: Unknowns) -> Any:
        expect(plain, str)
        try:
            return parse(plain)
        except ValueError as error:
            pass_on_interruption(error)
            raise Mismatch(f"is not {name}") from None

    return from_plain


def _uuid_to_plain(value: Any, _: Unknowns) -> Any:
    expect(value, UUID)
    return str(value)


def _spell_ip(value: Any) -> str:
    """Python writes ::ffff:1.2.3.4 like that, and like Go, only from 3.13 on; before that it writes ::ffff:102:304."""
    text, slash, prefix = str(value).partition("/")
    if text.startswith("::ffff:") and (address := IPv6Address(text)).ipv4_mapped:
        text = f"::ffff:{address.ipv4_mapped}" + (f"%{address.scope_id}" if address.scope_id else "")
    return f"{text}{slash}{prefix}"


def _spell_bytes(value: bytes) -> str:
    return b64encode(value).decode("ascii")


def _duration_to_plain(value: Any, _: Unknowns) -> Any:
    expect(value, timedelta)
    return value // timedelta(microseconds=1)


def _duration_from_plain(plain: Any, _: Unknowns) -> Any:
    expect(plain, int)
    return timedelta(microseconds=plain)


def _anything_to_plain(value: Any, _: Unknowns) -> Any:
    check_plain(value)
    return value


def _anything_from_plain(plain: Any, _: Unknowns) -> Any:
    return plain


def _shared_from_plain(plain: Any, _: Unknowns) -> Any:
    expect(plain, str)
    return intern(plain)


_TEXT = frozenset({str})
FLOAT = Codec(_number_to_plain, _number_from_plain, frozenset({float, int}), frozenset({float, int}))
SCALARS: dict[type, Codec] = {
    **{cls: _exactly(cls) for cls in AS_IS},
    float: FLOAT,
    datetime: Codec(
        _time_to_plain, _parsed(datetime.fromisoformat, "a time in ISO 8601"), frozenset({datetime}), _TEXT
    ),
    timedelta: Codec(_duration_to_plain, _duration_from_plain, frozenset({timedelta}), frozenset({int})),
    UUID: Codec(_uuid_to_plain, _parsed(UUID, "a UUID"), frozenset({UUID}), _TEXT),
    bytes: _spelled(bytes, _spell_bytes, b64decode),
    **{cls: replace(_spelled(cls, _spell_ip, cls), colons="6" in cls.__name__) for cls in ADDRESSES},
    **{cls: _spelled(type(cls()), str, cls) for cls in (Path, PurePath, PurePosixPath)},
}
SHARED_TEXT = replace(SCALARS[str], decode=_shared_from_plain, shared=True)
_JSON = AS_IS | {float, list, dict}
ANYTHING = Codec(_anything_to_plain, _anything_from_plain, _JSON, _JSON, AS_IS)
