"""From a type to two functions: typed value -> plain JSON value, and back.

A codec is built once per schema from the type's annotations. It accepts exactly the declared types, so that
what was stored is what is read back; anything else is a Mismatch with its place, never with its value.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable
from enum import Enum, Flag
from typing import Any, Literal, NamedTuple

from .plain import Mismatch, check_plain
from .scalars import ANYTHING, FLOAT, NONE, SCALARS, Codec, Function, choices, expect
from .unknown import CARRIER, UnknownFields, Unknowns

_ADVICE = "declare it with another type, or give the schema encode= and decode="


def codec_for(annotation: Any) -> Codec:
    """The codec of a type, or TypeError naming the part of it that cannot be stored."""
    return _Builder().build(annotation, getattr(annotation, "__name__", str(annotation)))


class _Builder:
    """Builds the codec of a type and of all types below it, each dataclass once, so that types may recurse."""

    def __init__(self) -> None:
        self._dataclasses: dict[type, Codec] = {}

    def build(self, annotation: Any, name: str) -> Codec:
        while hasattr(annotation, "__supertype__"):  # a NewType
            annotation = annotation.__supertype__
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if annotation is Any or annotation is object:
            return ANYTHING
        if annotation is None:
            return SCALARS[NONE]
        if origin is typing.Annotated:
            return self.build(arguments[0], name)
        if origin in (typing.Union, types.UnionType):
            return _union([self.build(member, name) for member in arguments], name)
        if origin is Literal:
            return choices({(type(value), value): value for value in arguments}, name)
        if origin in (list, set, frozenset) or (origin is tuple and arguments[1:] == (Ellipsis,)):
            return _sequence(origin, self.build(arguments[0], f"{name}[]"))
        if origin is tuple:
            return _fixed_tuple([self.build(member, f"{name}[{i}]") for i, member in enumerate(arguments)])
        if origin is dict:
            return _mapping(self.build(arguments[0], f"{name} key"), self.build(arguments[1], f"{name}[]"), name)
        if isinstance(annotation, type) and origin is None:
            return self._build_class(annotation, name)
        raise TypeError(f"{name}: {annotation!r} cannot be stored; {_ADVICE}")

    def _build_class(self, cls: type, name: str) -> Codec:
        if cls in SCALARS:
            return SCALARS[cls]
        if cls in (dict, list):
            return _any_container(cls)
        if issubclass(cls, Enum) and not issubclass(cls, Flag):
            return choices({(type(member.value), member.value): member for member in cls}, name)
        if dataclasses.is_dataclass(cls):
            return self._dataclasses.get(cls) or self._build_dataclass(cls)
        raise TypeError(f"{name}: {cls.__name__} cannot be stored; {_ADVICE}")

    def _build_dataclass(self, cls: type) -> Codec:
        members: list[_Member] = []
        codec = _dataclass(cls, members)
        self._dataclasses[cls] = codec  # before its members are built, which may name the class again
        hints = typing.get_type_hints(cls, include_extras=True)
        for field in dataclasses.fields(cls):
            if field.metadata.get(CARRIER):
                continue
            place = f"{cls.__name__}.{field.name}"
            if not field.init:
                raise TypeError(f"{place}: a field with init=False could not be given back; {_ADVICE}")
            built = self.build(hints[field.name], place)
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            members.append(_Member(field.name, built.encode, built.decode, required))
        return codec


class _Member(NamedTuple):
    name: str
    encode: Function
    decode: Function
    required: bool


def _dataclass(cls: Any, members: list[_Member]) -> Codec:
    carrier = next((field.name for field in dataclasses.fields(cls) if field.metadata.get(CARRIER)), None)

    def encode(value: Any, unknowns: Unknowns) -> Any:
        expect(value, cls)
        plain = {}
        for name, encode_member, _, _ in members:
            try:
                plain[name] = encode_member(getattr(value, name), unknowns)
            except Mismatch as mismatch:
                raise mismatch.inside(name) from None
        if carrier is not None:
            carried: UnknownFields = getattr(value, carrier)
            unknowns.carry(carried)
            return {**carried, **plain} if carried else plain
        return {**unknowns.of(value), **plain} if unknowns.by_object else plain

    def decode(plain: Any, unknowns: Unknowns) -> Any:
        expect(plain, dict)
        arguments = {}
        for name, _, decode_member, required in members:
            if name in plain:
                try:
                    arguments[name] = decode_member(plain[name], unknowns)
                except Mismatch as mismatch:
                    raise mismatch.inside(name) from None
            elif required:
                raise Mismatch(f"lacks the field {name!r}, which has no default")
        if not unknowns.version:
            return _construct(cls, arguments)
        extra = {name: value for name, value in plain.items() if name not in arguments}
        if carrier is not None:
            arguments[carrier] = UnknownFields(extra, unknowns.version, unknowns.readable_by)
            return _construct(cls, arguments)
        value = _construct(cls, arguments)
        if extra:
            unknowns.keep(value, extra)
        return value

    return Codec(encode, decode, frozenset({cls}), frozenset({dict}))


def _construct(cls: Any, arguments: dict[str, Any]) -> Any:
    try:
        return cls(**arguments)
    except Exception as error:  # noqa: BLE001  (a class may validate with any error, whose text may quote data)
        raise Mismatch(f"is refused by {cls.__name__} with {type(error).__name__}") from None


def _sequence(cls: Any, item: Codec) -> Codec:
    in_order = cls in (list, tuple)

    def encode(value: Any, unknowns: Unknowns) -> Any:
        expect(value, cls)
        plain = _each(item.encode, value, unknowns)
        return plain if in_order else sorted(plain, key=repr)  # the same set gives the same bytes

    def decode(plain: Any, unknowns: Unknowns) -> Any:
        expect(plain, list)
        values = _each(item.decode, plain, unknowns)
        return values if cls is list else cls(values)

    return Codec(encode, decode, frozenset({cls}), frozenset({list}))


def _fixed_tuple(items: list[Codec]) -> Codec:
    def convert(functions: list[Function], values: Any, unknowns: Unknowns) -> list[Any]:
        if len(values) != len(functions):
            raise Mismatch(f"has {len(values)} items, not {len(functions)}")
        pairs = zip(functions, values, strict=True)
        return _each(lambda pair, kept: pair[0](pair[1], kept), pairs, unknowns)

    def encode(value: Any, unknowns: Unknowns) -> Any:
        expect(value, tuple)
        return convert([item.encode for item in items], value, unknowns)

    def decode(plain: Any, unknowns: Unknowns) -> Any:
        expect(plain, list)
        return tuple(convert([item.decode for item in items], plain, unknowns))

    return Codec(encode, decode, frozenset({tuple}), frozenset({list}))


def _mapping(key: Codec, item: Codec, name: str) -> Codec:
    if key.json != {str}:
        raise TypeError(f"{name}: JSON keys are text, so a dict's keys must be stored as text; {_ADVICE}")

    def convert(on_key: Function, on_item: Function) -> Function:
        def each(values: Any, unknowns: Unknowns) -> Any:
            expect(values, dict)
            result = {}
            for member, value in values.items():
                try:
                    result[on_key(member, unknowns)] = on_item(value, unknowns)
                except Mismatch as mismatch:
                    raise mismatch.inside(str(member)) from None
            return result

        return each

    to_plain, from_plain = convert(key.encode, item.encode), convert(key.decode, item.decode)
    return Codec(to_plain, from_plain, frozenset({dict}), frozenset({dict}))


def _any_container(cls: type) -> Codec:
    def encode(value: Any, _: Unknowns) -> Any:
        expect(value, cls)
        check_plain(value)
        return value

    def decode(plain: Any, _: Unknowns) -> Any:
        expect(plain, cls)
        return plain

    return Codec(encode, decode, frozenset({cls}), frozenset({cls}))


def _union(members: list[Codec], name: str) -> Codec:
    """Its members are told apart by type on both sides, so that what is read is what was written."""
    members = sorted(members, key=lambda member: member is FLOAT)  # so that in `int | float` an int stays one
    to_plain: dict[type, Function] = {}
    from_plain: dict[type, Function] = {}
    for member in members:
        for cls in member.python:
            if to_plain.setdefault(cls, member.encode) is not member.encode and not (member is FLOAT and cls is int):
                raise TypeError(f"{name}: the members of the union are not told apart by type; {_ADVICE}")
        for cls in member.json:
            if from_plain.setdefault(cls, member.decode) is not member.decode and not (member is FLOAT and cls is int):
                raise TypeError(f"{name}: the members of the union look alike in JSON; {_ADVICE}")

    def choose(table: dict[type, Function]) -> Function:
        def convert(value: Any, unknowns: Unknowns) -> Any:
            if function := table.get(type(value)):
                return function(value, unknowns)
            raise Mismatch(f"is {type(value).__name__}, which is none of the declared types")

        return convert

    return Codec(choose(to_plain), choose(from_plain), frozenset(to_plain), frozenset(from_plain))


def _each(function: Function, values: Iterable[Any], unknowns: Unknowns) -> list[Any]:
    result: list[Any] = []
    try:
        for value in values:
            result.append(function(value, unknowns))
    except Mismatch as mismatch:
        raise mismatch.inside(len(result)) from None
    return result
