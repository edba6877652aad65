"""Turns a type into two functions: typed value -> plain JSON value, and back.

A codec is built once per schema from the type's annotations. It accepts exactly the declared types, so that
what was stored is what is read back. For anything else it raises a Mismatch with the place, never with the value.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from enum import Enum, Flag
from functools import partial
from typing import Any, Literal

from .jsonvalues import check_plain
from .misfit import ANY_KEY, Mismatch, guarded
from .objects import Member, dataclass_codec, fields_of
from .simpletypes import (
    ADVICE,
    ANYTHING,
    NONE,
    SCALARS,
    SHARED_TEXT,
    Codec,
    Function,
    SharedText,
    Tags,
    as_key,
    choices,
    expect,
    not_a,
)
from .unions import tags_of, union
from .unknown import CARRIER, Unknowns


def codec_for(annotation: Any) -> Codec:
    """The codec of a type. Raises a TypeError that names the part of the type that cannot be stored."""
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
            return SHARED_TEXT if annotation == SharedText else self.build(arguments[0], name)
        if origin in (typing.Union, types.UnionType):
            return union([self.build(member, name) for member in arguments], name)
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
        if is_dataclass(cls):
            return self._dataclasses.get(cls) or self._build_dataclass(cls)
        raise TypeError(f"{name}: {cls.__name__} cannot be stored; {ADVICE}")

    def _build_dataclass(self, cls: type) -> Codec:
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except NameError as error:
            raise TypeError(f"{cls.__name__}: {error}; the types that it names are looked up in its module") from None
        stored = [field for field in fields_of(cls) if CARRIER not in field.metadata]
        tags = tags_of(cls, hints)
        self._dataclasses[cls] = self._forward(cls, tags)  # the types of its fields may refer to the class itself
        members = [Member(field, self.build(hints[field.name], f"{cls.__name__}.{field.name}")) for field in stored]
        self._dataclasses[cls] = replace(dataclass_codec(cls, members), tags=tags)
        return self._dataclasses[cls]

    def _forward(self, cls: type, tags: Tags) -> Codec:
        """Stands in for the codec of a class until that codec is built."""

        def encode(value: Any, unknowns: Unknowns) -> Any:
            return self._dataclasses[cls].encode(value, unknowns)

        def decode(plain: Any, unknowns: Unknowns) -> Any:
            return self._dataclasses[cls].decode(plain, unknowns)

        return Codec(encode, decode, frozenset({cls}), frozenset({dict}), tags=tags)


def _sequence(cls: Any, item: Codec) -> Codec:
    # Mixed types and dicts have no order of their own.
    order = None if item.json in (frozenset({str}), frozenset({int})) else repr
    read_as_is = frozenset[type]() if item.shared else item.as_is
    if cls in (list, tuple):
        encode = _each(item.encode, item.as_is, cls, list)
        decode = _each(item.decode, read_as_is, list, cls)
    else:
        encode = _each(item.encode, item.as_is, cls, partial(sorted, key=order))  # the same set gives the same bytes
        decode = _each(item.decode, read_as_is, list, partial(_distinct, cls))
    return Codec(encode, decode, frozenset({cls}), frozenset({list}))


def _each(function: Function, as_is: frozenset[type], source: Any, target: Callable[[list[Any]], Any]) -> Function:
    """A function that takes a `source`, converts each value that needs it, and makes a `target` of the results."""

    def each(values: Any, unknowns: Unknowns) -> Any:
        if type(values) is not source:
            raise not_a(source, values)
        result: list[Any] = []
        try:
            for value in values:
                result.append(value if type(value) in as_is else function(value, unknowns))
        except Mismatch as mismatch:
            raise mismatch.inside(len(result)) from None
        return result if target is list else target(result)

    return each


def _distinct(cls: Any, values: list[Any]) -> Any:
    result = guarded(f"a {cls.__name__}", cls, values)  # which asks the values for their hash
    if len(result) != len(values):
        raise Mismatch("holds a value twice, which a set cannot")
    return result


def _fixed_tuple(items: list[Codec]) -> Codec:
    def convert(functions: list[Function], source: type, target: type) -> Function:
        def each(values: Any, unknowns: Unknowns) -> Any:
            expect(values, source)
            if len(values) != len(functions):
                raise Mismatch(f"has {len(values)} items, not {len(functions)}")
            return pairs(list(zip(functions, values, strict=True)), unknowns)

        pairs = _each(lambda pair, unknowns: pair[0](pair[1], unknowns), frozenset(), list, target)
        return each

    encode, decode = (
        convert([item.encode for item in items], tuple, list),
        convert([item.decode for item in items], list, tuple),
    )
    return Codec(encode, decode, frozenset({tuple}), frozenset({list}))


def _mapping(key_type: Codec, item: Codec, name: str) -> Codec:
    key = as_key(key_type)
    if key is None:
        raise TypeError(f"{name}: JSON keys are text, so a dict's keys are stored as text or as integers; {ADVICE}")
    keys_as_is, items_as_is = key.as_is, item.as_is

    def convert(on_key: Function, on_item: Function) -> Function:
        def each(values: Any, unknowns: Unknowns) -> Any:
            expect(values, dict)
            result = {}
            for old, value in values.items():
                try:
                    new = old if type(old) in keys_as_is else on_key(old, unknowns)
                except Mismatch as mismatch:
                    raise Mismatch(f"has a key that {mismatch.why}") from None
                try:
                    result[new] = value if type(value) in items_as_is else on_item(value, unknowns)
                except Mismatch as mismatch:
                    raise mismatch.inside(ANY_KEY) from None
            if len(result) != len(values):
                raise Mismatch("has two keys that mean the same")
            return result

        return each

    to_plain, decode = convert(key.encode, item.encode), convert(key.decode, item.decode)

    def spelled_as_ours(values: Any, unknowns: Unknowns) -> Any:
        result = decode(values, unknowns)
        if unknowns.version:  # a key spelled differently from ours would be taken for an unknown field
            members = dict(zip([key.encode(name, unknowns) for name in result], values.values(), strict=True))
            values.clear()
            values.update(members)
        return result

    return Codec(to_plain, decode if key.as_is else spelled_as_ours, frozenset({dict}), frozenset({dict}))


def _any_container(cls: type) -> Codec:
    def encode(value: Any, _: Unknowns) -> Any:
        expect(value, cls)
        check_plain(value)
        return value

    def decode(plain: Any, _: Unknowns) -> Any:
        expect(plain, cls)
        return plain

    return Codec(encode, decode, frozenset({cls}), frozenset({cls}))
