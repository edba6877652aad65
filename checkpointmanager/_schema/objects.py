"""Turns a dataclass into a JSON object and back, with two functions generated as source once per class.

Every write encodes objects and a restart decodes thousands: straight-line code takes a third of the time of a loop
over the members. The dataclasses module generates __init__ in the same way.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MemberDescriptorType
from typing import Any, NamedTuple, cast

from .jsonvalues import check_plain
from .misfit import Mismatch, guarded, refusal
from .simpletypes import ADVICE, Codec, expect, not_a
from .unknown import CARRIER, NO_FIELDS, NONE_EXPECTED, UnknownFields, UnknownFound, Unknowns

Field = dataclasses.Field[Any]


class Member(NamedTuple):
    """One stored field of the class."""

    field: Field
    codec: Codec

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def as_argument(self) -> str:
        return f"{self.name}=" if self.field.kw_only else ""


def fields_of(cls: type) -> list[Field]:
    """The fields in the order in which the class's __init__ takes them: keyword-only fields last."""
    fields = sorted(dataclasses.fields(cls), key=lambda field: field.kw_only is True)
    if sorted(inspect.signature(cls).parameters) != sorted(field.name for field in fields):
        raise TypeError(f"{cls.__name__}: its __init__ takes arguments other than its fields; {ADVICE}")
    return fields


def dataclass_codec(cls: type, members: Sequence[Member]) -> Codec:
    """The codec of a dataclass whose members already have their codecs."""
    carrier = next((field.name for field in fields_of(cls) if CARRIER in field.metadata), None)
    encode = _function("encode", _encode_source(members, carrier), _names_of(cls, members))
    names = _names_of(cls, members) | {"with_unknowns": _keeper_of_unknowns(cls, members, carrier, encode)}
    ending = [*_construction(members)]
    if _only_assigns(cls):
        names |= {f"set_{field.name}": getattr(cls, field.name).__set__ for field in dataclasses.fields(cls)}
        ending = [*_assignments(members, carrier)]
    decode = _function("decode", _decode_source(members, ending), names)
    return Codec(encode, decode, frozenset({cls}), frozenset({dict}))


def _encode_source(members: Sequence[Member], carrier: str | None) -> Iterable[str]:
    yield "def encode(value, unknowns):"
    yield "  if type(value) is not cls: raise not_a(cls, value)"
    yield "  try:"
    yield "    name = ''"
    for number, member in enumerate(members):
        yield f"    name = {member.name!r}"
        yield f"    v{number} = value.{member.name}"
        yield f"    if {_differs(number, member)}: v{number} = encode{number}(v{number}, unknowns)"
    yield "  except Mismatch as mismatch: raise mismatch.inside(name) from None"
    yield f"  plain = {{{', '.join(f'{member.name!r}: v{number}' for number, member in enumerate(members))}}}"
    if carrier:
        yield f"  carried = value.{carrier}"
        yield "  if carried is not NO_FIELDS:"
        yield f"    plain = {{**carried_by({carrier!r}, carried, unknowns), **plain}}"
    yield "  return unknowns.put_back(value, plain) if unknowns.by_object else plain"


def _decode_source(members: Sequence[Member], ending: Iterable[str]) -> Iterable[str]:
    yield "def decode(plain, unknowns):"
    yield "  if type(plain) is not dict: raise not_a(dict, plain)"
    yield "  size = len(plain)"
    yield "  try:"
    yield "    name = ''"
    for number, member in enumerate(members):
        yield f"    name = {member.name!r}"
        yield "    if name in plain:"
        yield f"      v{number} = plain[name]"
        yield f"      if {_differs(number, member)}: v{number} = decode{number}(v{number}, unknowns)"
        if member.codec.shared:
            yield f"      v{number} = intern(v{number})"
        yield "    else:"
        yield "      size += 1"
        yield f"      v{number} = default{number}()"
    yield "  except Mismatch as mismatch: raise mismatch.inside(name) from None"
    values = ", ".join(f"v{number}" for number in range(len(members)))
    yield f"  if unknowns.version: return with_unknowns(plain, [{values}], unknowns)"
    yield f"  if size > {len(members)} and unknowns is NONE_EXPECTED: raise UnknownFound"
    yield from ending


def _assignments(members: Sequence[Member], carrier: str | None) -> Iterable[str]:
    """What the class's own __init__ does, in half the time if the class is frozen."""
    yield "  value = new(cls)"
    for number, member in enumerate(members):
        yield f"  set_{member.name}(value, v{number})"
    if carrier:
        yield f"  set_{carrier}(value, NO_FIELDS)"
    yield "  return value"


def _construction(members: Sequence[Member]) -> Iterable[str]:
    arguments = ", ".join(f"{member.as_argument}v{number}" for number, member in enumerate(members))
    yield f"  try: return cls({arguments})"
    yield "  except Exception as error: raise refusal(cls.__name__, error) from None"


def _differs(number: int, member: Member) -> str:
    """The test whether a value needs its codec: a single comparison if just one type is stored as it is."""
    as_is = member.codec.as_is
    return f"type(v{number}) {'is not' if len(as_is) == 1 else 'not in'} as_is{number}" if as_is else "True"


def _names_of(cls: type, members: Sequence[Member]) -> dict[str, Any]:
    """The names that the source may use, numbered so that no field can shadow anything else."""
    names: dict[str, Any] = {
        "cls": cls,
        "new": object.__new__,
        "not_a": not_a,
        "Mismatch": Mismatch,
        "intern": sys.intern,
        "NO_FIELDS": NO_FIELDS,
        "NONE_EXPECTED": NONE_EXPECTED,
        "UnknownFound": UnknownFound,
        "carried_by": _carried_by,
        "refusal": refusal,
    }
    for number, (field, codec) in enumerate(members):
        names[f"encode{number}"] = codec.encode
        names[f"decode{number}"] = codec.decode
        names[f"as_is{number}"] = next(iter(codec.as_is)) if len(codec.as_is) == 1 else codec.as_is
        names[f"default{number}"] = _default_of(field)
    return names


def _function(name: str, source: Iterable[str], names: dict[str, Any]) -> Callable[[Any, Unknowns], Any]:
    exec("\n".join(source), names)  # noqa: S102  (the source consists of identifiers and numbers only, never of data)
    return cast("Callable[[Any, Unknowns], Any]", names[name])


def _only_assigns(cls: Any) -> bool:
    """True if the dataclasses module generated __init__, and __init__ sets nothing but slots."""
    generated = cls.__init__.__code__.co_filename == "<string>" and not hasattr(cls, "__post_init__")
    slots = [getattr(cls, field.name, None) for field in dataclasses.fields(cls)]
    return generated and cls.__new__ is object.__new__ and all(isinstance(slot, MemberDescriptorType) for slot in slots)


def _default_of(field: Field) -> Callable[[], Any]:
    def constant() -> Any:
        return field.default

    def none() -> Any:
        raise Mismatch("is missing, and has no default")

    if field.default_factory is not dataclasses.MISSING:
        return partial(guarded, "its default factory", field.default_factory)
    return none if field.default is dataclasses.MISSING else constant


def _keeper_of_unknowns(
    cls: Any, members: Sequence[Member], carrier: str | None, encode: Callable[[Any, Unknowns], Any]
) -> Callable[[dict[str, Any], list[Any], Unknowns], Any]:
    """The rest of decoding if fields may be unknown: it keeps them with the object."""
    known = {member.name for member in members}

    def with_unknowns(plain: dict[str, Any], values: list[Any], unknowns: Unknowns) -> Any:
        arguments = {member.name: value for member, value in zip(members, values, strict=True)}
        if carrier:
            extra = {name: member for name, member in plain.items() if name not in known}
            arguments[carrier] = UnknownFields(extra, unknowns.version, unknowns.readable_by)
        value = guarded(cls.__name__, cls, **arguments)
        unknowns.keep(value, plain, encode(value, Unknowns(0, 0)))
        return value

    return with_unknowns


def _carried_by(carrier: str, carried: Any, unknowns: Unknowns) -> Mapping[str, Any]:
    try:
        expect(carried, UnknownFields)
        check_plain(dict(carried))
    except Mismatch as mismatch:
        raise mismatch.inside(carrier) from None
    unknowns.carry(carried)
    return cast("Mapping[str, Any]", carried)
