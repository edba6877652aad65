"""The Go types that kubelet decodes its files into: what decoding and dumping need to know of each.

Values are plain Python: str, int, bytes, list, dict (a struct is a dict by Go field name), None for nil.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from .syntax import Node

Value: TypeAlias = Any


class UnmarshalError(Exception):
    """A type's own unmarshalling failed: unlike a wrong type, this ends the whole decode at once."""


@dataclass(frozen=True, slots=True)
class String:
    """A string or a type made of one."""

    name: str = "string"


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer type with its range, both ends included."""

    name: str
    lowest: int
    highest: int

    def __str__(self) -> str:
        sign = "a signed" if self.lowest < 0 else "an unsigned"
        return f"{sign} integer of {(self.highest - self.lowest).bit_length()} bits"


@dataclass(frozen=True, slots=True)
class Bytes:
    """[]byte: base64 in JSON."""

    name: str = "[]uint8"


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of anything but bytes."""

    name: str
    element: GoType


@dataclass(frozen=True, slots=True)
class Map:
    """A map with string keys, or integer keys that JSON writes as strings."""

    name: str
    element: GoType
    integer_keys: bool = False


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer; its value is the target's, or None."""

    target: GoType


@dataclass(frozen=True, slots=True)
class Field:
    """A struct field: its Go name, its JSON name (the Go name where there is no tag), its type."""

    name: str
    type: GoType
    json: str = ""


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct with its fields in Go's order."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Custom:
    """A type with its own UnmarshalJSON; `unmarshal` raises UnmarshalError."""

    shape: GoType
    unmarshal: Callable[[Node], Value]


GoType: TypeAlias = String | Integer | Bytes | Slice | Map | Pointer | Struct | Custom

STRING = String()
INT = Integer("int", -(2**63), 2**63 - 1)
UINT32 = Integer("uint32", 0, 2**32 - 1)
UINT64 = Integer("uint64", 0, 2**64 - 1)
CHECKSUM = Integer("checksum.Checksum", 0, 2**64 - 1)
STRINGS = Slice("[]string", STRING)
EMPTY_STRUCT = Struct("struct {}", ())


def zero(gotype: GoType) -> Value:
    """A new zero value of the type."""
    match gotype:
        case String():
            return ""
        case Integer():
            return 0
        case Struct(fields=fields):
            return {field.name: zero(field.type) for field in fields}
        case Custom(shape=shape):
            return zero(shape)
        case _:
            return None
