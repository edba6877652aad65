"""From a type to two functions: typed value -> plain JSON value, and back.

A codec is built once per schema from the type's annotations. It accepts exactly the declared types, so that
what was stored is what is read back; anything else is a Mismatch with its place, never with its value.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, Flag
from typing import Any, Literal, cast

from .plain import Mismatch, check_plain
from .scalars import ADVICE, ANYTHING, FLOAT, NONE, SCALARS, Codec, Function, choices, expect, not_a
from .unknown import CARRIER, UnknownFields, Unknowns, beyond

# Name, as_is, encode, decode, default: a plain tuple, because it is unpacked for every member of every object.
_Member = tuple[str, frozenset[type], Function, Function, Callable[[], Any]]


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
        if (origin in (list, set, frozenset) and arguments) or (origin is tuple and arguments[1:] == (Ellipsis,)):
            return _sequence(origin, self.build(arguments[0], f"{name}[]"))
        if origin is tuple:
            return _fixed_tuple([self.build(member, f"{name}[{i}]") for i, member in enumerate(arguments)])
        if origin is dict and arguments:
            return _mapping(self.build(arguments[0], f"{name} key"), self.build(arguments[1], f"{name}[]"), name)
        if isinstance(origin or annotation, type) and not arguments:
            return self._build_class(origin or annotation, name)
        raise TypeError(f"{name}: {annotation!r} cannot be stored; {ADVICE}")

    def _build_class(self, cls: type, name: str) -> Codec:
        if cls in SCALARS:
            return SCALARS[cls]
        if cls in (dict, list):
            return _any_container(cls)
        if issubclass(cls, Enum) and not issubclass(cls, Flag):
            return choices({(type(member.value), member.value): member for member in cls}, name)
        if dataclasses.is_dataclass(cls):
            return self._dataclasses.get(cls) or self._build_dataclass(cls)
        raise TypeError(f"{name}: {cls.__name__} cannot be stored; {ADVICE}")

    def _build_dataclass(self, cls: type) -> Codec:
        members: list[_Member] = []
        codec = _dataclass(cls, members)
        self._dataclasses[cls] = codec  # before its members are built, which may name the class again
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except NameError as error:
            raise TypeError(f"{cls.__name__}: {error}; types that a dataclass names are found in its module") from None
        for field in _in_order_of_init(cls):
            if not field.metadata.get(CARRIER):
                built = self.build(hints[field.name], f"{cls.__name__}.{field.name}")
                members.append((field.name, built.as_is, built.encode, built.decode, _default_of(field)))
        return codec


def _in_order_of_init(cls: type) -> list[dataclasses.Field[Any]]:
    """The fields as the class's __init__ takes them: those that are keyword-only last, the carrier at the end."""
    fields = sorted(dataclasses.fields(cls), key=lambda field: (field.kw_only, CARRIER in field.metadata))
    if sorted(inspect.signature(cls).parameters) != sorted(field.name for field in fields):
        raise TypeError(f"{cls.__name__}: its __init__ takes other arguments than its fields; {ADVICE}")
    return fields


def _default_of(field: dataclasses.Field[Any]) -> Callable[[], Any]:
    def constant() -> Any:
        return field.default

    def none() -> Any:
        raise Mismatch("is not there, and has no default")

    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    return none if field.default is dataclasses.MISSING else constant


def _dataclass(cls: type, members: list[_Member]) -> Codec:
    fields = _in_order_of_init(cls)
    carrier = next((field.name for field in fields if CARRIER in field.metadata), None)
    known = {field.name for field in fields}
    construct = _constructor(cls, fields)

    def encode(value: Any, unknowns: Unknowns) -> Any:
        if type(value) is not cls:
            raise not_a(cls, value)
        plain = {}
        name = ""
        try:
            for name, as_is, encode_member, _, _ in members:
                member = getattr(value, name)
                plain[name] = member if type(member) in as_is else encode_member(member, unknowns)
        except Mismatch as mismatch:
            raise mismatch.inside(name) from None
        if carrier is not None:
            plain = {**_carried(value, carrier, unknowns), **plain}
        return unknowns.settle(value, plain) if unknowns.by_object else plain

    def decode(plain: Any, unknowns: Unknowns) -> Any:
        if type(plain) is not dict:
            raise not_a(dict, plain)
        values = []
        name = ""
        try:
            for name, as_is, _, decode_member, default in members:
                if name in plain:
                    member = plain[name]
                    values.append(member if type(member) in as_is else decode_member(member, unknowns))
                else:
                    values.append(default())
        except Mismatch as mismatch:
            raise mismatch.inside(name) from None
        if carrier is not None and unknowns.version:
            extra = {name: member for name, member in plain.items() if name not in known}
            values.append(UnknownFields(extra, unknowns.version, unknowns.readable_by))
        try:
            value = construct(*values)
        except Exception as error:  # noqa: BLE001  (a class may validate with any error, whose text may quote data)
            raise Mismatch(f"is refused by {cls.__name__} with {type(error).__name__}") from None
        if unknowns.version:
            unknowns.keep(value, beyond(plain, encode(value, Unknowns(0, 0))))
        return value

    return Codec(encode, decode, frozenset({cls}), frozenset({dict}))


def _constructor(cls: Any, fields: list[dataclasses.Field[Any]]) -> Callable[..., Any]:
    """Takes all values in order, which is twice as fast as by keyword; those that must be keywords are named here."""
    keywords = [field.name for field in fields if field.kw_only]
    positional = len(fields) - len(keywords)

    def with_keywords(*values: Any) -> Any:
        return cls(*values[:positional], **dict(zip(keywords, values[positional:], strict=False)))

    return with_keywords if keywords else cls


def _carried(value: Any, carrier: str, unknowns: Unknowns) -> Mapping[str, Any]:
    carried = getattr(value, carrier)
    try:
        expect(carried, UnknownFields)
        check_plain(dict(carried))
    except Mismatch as mismatch:
        raise mismatch.inside(carrier) from None
    if carried.version:
        unknowns.carry(carried)
    return cast("Mapping[str, Any]", carried)


def _sequence(cls: Any, item: Codec) -> Codec:
    as_is, in_order = item.as_is, cls in (list, tuple)
    order = (
        None if item.json in (frozenset({str}), frozenset({int})) else repr
    )  # mixed types and dicts have no order of their own

    def encode(value: Any, unknowns: Unknowns) -> Any:
        if type(value) is not cls:
            raise not_a(cls, value)
        plain = list(value) if as_is.issuperset(map(type, value)) else _each(item.encode, value, unknowns)
        return plain if in_order else sorted(plain, key=order)  # the same set gives the same bytes

    def decode(plain: Any, unknowns: Unknowns) -> Any:
        if type(plain) is not list:
            raise not_a(list, plain)
        values = plain if as_is.issuperset(map(type, plain)) else _each(item.decode, plain, unknowns)
        return cls(values) if in_order else _distinct(cls, values)

    return Codec(encode, decode, frozenset({cls}), frozenset({list}))


def _distinct(cls: Any, values: list[Any]) -> Any:
    try:
        result = cls(values)
    except TypeError:
        raise Mismatch("holds what cannot be in a set") from None
    if len(result) != len(values):
        raise Mismatch("holds a value twice, which a set cannot")
    return result


def _each(function: Function, values: Iterable[Any], unknowns: Unknowns) -> list[Any]:
    result: list[Any] = []
    try:
        for value in values:
            result.append(function(value, unknowns))
    except Mismatch as mismatch:
        raise mismatch.inside(len(result)) from None
    return result


def _fixed_tuple(items: list[Codec]) -> Codec:
    def convert(functions: list[Function], values: Any, unknowns: Unknowns) -> list[Any]:
        if len(values) != len(functions):
            raise Mismatch(f"has {len(values)} items, not {len(functions)}")
        return _each(lambda pair, kept: pair[0](pair[1], kept), zip(functions, values, strict=True), unknowns)

    def encode(value: Any, unknowns: Unknowns) -> Any:
        expect(value, tuple)
        return convert([item.encode for item in items], value, unknowns)

    def decode(plain: Any, unknowns: Unknowns) -> Any:
        expect(plain, list)
        return tuple(convert([item.decode for item in items], plain, unknowns))

    return Codec(encode, decode, frozenset({tuple}), frozenset({list}))


def _mapping(key: Codec, item: Codec, name: str) -> Codec:
    if key.json != {str}:
        raise TypeError(f"{name}: JSON keys are text, so a dict's keys must be stored as text; {ADVICE}")

    def convert(on_key: Function, on_item: Function) -> Function:
        def each(values: Any, unknowns: Unknowns) -> Any:
            expect(values, dict)
            result = {}
            for old, value in values.items():
                try:
                    new = old if type(old) in key.as_is else on_key(old, unknowns)
                except Mismatch as mismatch:
                    raise Mismatch(f"has a key that {mismatch.why}") from None
                try:
                    result[new] = value if type(value) in item.as_is else on_item(value, unknowns)
                except Mismatch as mismatch:
                    raise mismatch.inside(new if type(new) is str else old) from None
            if len(result) != len(values):
                raise Mismatch("has two keys that mean the same")
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
    if ANYTHING in members and all(member.as_is for member in members):
        return ANYTHING  # such as Any | None
    members = sorted(members, key=lambda member: member is FLOAT)  # so that in `int | float` an int stays one
    to_plain: dict[type, Function] = {}
    from_plain: dict[type, Function] = {}
    for member in members:
        for cls in member.python:
            if to_plain.setdefault(cls, member.encode) is not member.encode and not (member is FLOAT and cls is int):
                raise TypeError(f"{name}: the members of the union are not told apart by type; {ADVICE}")
        for cls in member.json:
            if from_plain.setdefault(cls, member.decode) is not member.decode and not (member is FLOAT and cls is int):
                raise TypeError(f"{name}: the members of the union look alike in JSON; {ADVICE}")

    def choose(table: dict[type, Function]) -> Function:
        def convert(value: Any, unknowns: Unknowns) -> Any:
            if function := table.get(type(value)):
                return function(value, unknowns)
            raise Mismatch(f"is {type(value).__name__}, which is none of the declared types")

        return convert

    as_is = frozenset[type]().union(*(member.as_is for member in members))
    return Codec(choose(to_plain), choose(from_plain), frozenset(to_plain), frozenset(from_plain), as_is)
