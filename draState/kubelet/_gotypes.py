"""The Go types that kubelet decodes its files into, and how encoding/json decodes into each, oddities included.

Values are plain Python: str, int, bytes, list, dict (a struct is a dict by Go field name), None for nil. As in Go,
decoding starts from the old value of a variable. A value of the wrong type is noted and decoding continues, so that
the fields after it are still filled: kubelet's choice of the form to try next depends on them.

A JsonPath never shows data: a map's key becomes "[…]", and an unknown name is shown only if it looks like a field.
"""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ._syntax import Node, NotJSONError, Number, Object, fold, parse

Value: TypeAlias = Any

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII)


def decode(gotype: GoType, node: Node, preset: Value, root: str = "") -> Decoded:
    """Decode `node` over `preset`, which is changed in place if it is a struct. `root` begins the paths."""
    result = Decoded(preset)
    with suppress(UnmarshalError):  # noted where it happened
        result.value = gotype.decode(node, preset, (None, root), result)
    return result


def decode_text(gotype: GoType, text: str, preset: Value, root: str) -> Decoded:
    """Decode JSON text inside a document; text that is not JSON is a problem like any other."""
    try:
        node = parse(text.encode("utf-8"))
    except NotJSONError as error:
        return Decoded(preset, problems=[f"{root} is not JSON ({error if text else 'it is empty'})"])
    return decode(gotype, node, preset, root)


class UnmarshalError(Exception):
    """A type's own unmarshalling failed: unlike a wrong type, this ends the whole decode at once."""


class GoType(ABC):
    """A Go type; all but pointers and the like have a `name`, which dumps print."""

    name: str

    @abstractmethod
    def decode(self, node: Node, old: Value, path: JsonPath, notes: Decoded) -> Value:
        """The value after assigning `node` to a variable that holds `old`."""

    def zero(self) -> Value:
        """A new zero value of the type."""
        return None


@dataclass(frozen=True, slots=True)
class String(GoType):
    """A string or a type made of one."""

    name: str = "string"

    def decode(self, node: Node, old: Value, path: JsonPath, notes: Decoded) -> Value:
        if type(node) is str:
            return node
        if isinstance(node, str):
            return str(node)
        if node is not None:
            notes.wrong(path, "a string")
        return old

    def zero(self) -> Value:
        return ""


@dataclass(frozen=True, slots=True)
class Integer(GoType):
    """An integer type with its range, `lowest` and `highest` included."""

    name: str
    lowest: int
    highest: int

    def decode(self, node: Node, old: Value, path: JsonPath, notes: Decoded) -> Value:
        if node is None:
            return old
        # Unsigned types refuse any sign, even in "-0".
        text = node.text if isinstance(node, Number) else ""
        signed = text.startswith("-") and self.lowest >= 0
        if signed or not _INTEGER.fullmatch(text) or not self.lowest <= int(text) <= self.highest:
            sign = "a signed" if self.lowest < 0 else "an unsigned"
            notes.wrong(path, f"{sign} integer of {(self.highest - self.lowest).bit_length()} bits")
            return old
        return int(text)

    def zero(self) -> Value:
        return 0


@dataclass(frozen=True, slots=True)
class Bytes(GoType):
    """[]byte: base64 in JSON."""

    name: str = "[]uint8"

    def decode(self, node: Node, old: Value, path: JsonPath, notes: Decoded) -> Value:
        if node is None:
            return None
        if isinstance(node, list):
            return bytes(_OCTET.decode(value, 0, (path, index), notes) for index, value in enumerate(node))
        # Go skips line ends anywhere and ignores the spare bits of the last digit.
        text = node.replace("\r", "").replace("\n", "") if isinstance(node, str) else "?"
        if not _BASE64.fullmatch(text):
            notes.wrong(path, "base64 in the standard alphabet with padding")
            return old
        return base64.b64decode(text)


@dataclass(frozen=True, slots=True)
class Slice(GoType):
    """A slice of anything but bytes; `element` is their type."""

    name: str
    element: GoType

    def decode(self, node: Node, old: Value, path: JsonPath, notes: Decoded) -> Value:
        if node is None:
            return None
        if not isinstance(node, list):
            notes.wrong(path, "an array")
            return old
        decode, zero = self.element.decode, self.element.zero
        reused = old or ()  # a slice decoded a second time reuses the elements it has
        return [
            decode(value, reused[index] if index < len(reused) else zero(), (path, index), notes)
            for index, value in enumerate(node)
        ]


@dataclass(frozen=True, slots=True)
class Map(GoType):
    """A map to `element`, with string keys or, with integer_keys, integers that JSON writes as strings."""

    name: str
    element: GoType
    integer_keys: bool = False

    def decode(self, node: Node, old: Value, path: JsonPath, notes: Decoded) -> Value:
        if node is None:
            return None
        if not isinstance(node, Object):
            notes.wrong(path, "an object")
            return old
        result = {} if old is None else old
        seen: set[str] = set()
        below = (path, None)
        for name, value in node.members:
            if name in seen:
                notes.repeated.append(below)
            seen.add(name)
            # A map element always starts from zero, even if the key was there before.
            element = self.element.decode(value, self.element.zero(), below, notes)
            if not self.integer_keys:
                result[name] = element
            elif _INTEGER.fullmatch(name) and INT.lowest <= int(name) <= INT.highest:
                result[int(name)] = element
            else:
                notes.problems.append(f"a key of {spelled(path)} is not an integer")
        return result


@dataclass(frozen=True, slots=True)
class Pointer(GoType):
    """A pointer; its value is the target's, or None."""

    target: GoType

    def decode(self, node: Node, old: Value, path: JsonPath, notes: Decoded) -> Value:
        if node is None:
            return None
        return self.target.decode(node, self.target.zero() if old is None else old, path, notes)


@dataclass(frozen=True, slots=True)
class Field:
    """A struct field: its Go name, its type, and `json`, its JSON name (the Go name if there is no tag)."""

    name: str
    type: GoType
    json: str = ""


@dataclass(frozen=True, slots=True)
class Struct(GoType):
    """A struct with its fields in Go's order."""

    name: str
    fields: tuple[Field, ...]
    _exact: dict[str, Field] = field(init=False, repr=False, compare=False, default_factory=dict)
    _folded: dict[str, Field] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._exact.update({member.json or member.name: member for member in self.fields})
        self._folded.update({fold(name): member for name, member in self._exact.items()})

    def decode(self, node: Node, old: Value, path: JsonPath, notes: Decoded) -> Value:
        if node is None:
            return old
        if not isinstance(node, Object):
            notes.wrong(path, "an object")
            return old
        seen: set[str] = set()
        for given, value in node.members:
            member = self._exact.get(given) or self._folded.get(fold(given))
            if member is None:
                notes.unknown.append((path, given))
                continue
            name = member.name
            below = (path, member.json or name)
            if name in seen:
                notes.repeated.append(below)
            seen.add(name)
            old[name] = member.type.decode(value, old[name], below, notes)
        return old

    def zero(self) -> Value:
        return {member.name: member.type.zero() for member in self.fields}


@dataclass(frozen=True, slots=True)
class Custom(GoType):
    """A type with its own UnmarshalJSON; `unmarshal` raises UnmarshalError, `shape` has its zero value."""

    shape: GoType
    unmarshal: Callable[[Node], Value]

    def decode(self, node: Node, old: Value, path: JsonPath, notes: Decoded) -> Value:
        try:
            return self.unmarshal(node)
        except UnmarshalError as refusal:
            notes.problems.append(f"{spelled(path)}: {refusal}")
            raise

    def zero(self) -> Value:
        return self.shape.zero()


STRING = String()  # Go's string
INT = Integer("int", -(2**63), 2**63 - 1)  # Go's int
UINT32 = Integer("uint32", 0, 2**32 - 1)
UINT64 = Integer("uint64", 0, 2**64 - 1)  # Go's uint64
CHECKSUM = Integer("checksum.Checksum", 0, 2**64 - 1)  # kubelet's own type
STRINGS = Slice("[]string", STRING)  # Go's []string
EMPTY_STRUCT = Struct("struct {}", ())  # the element of a set
_OCTET = Integer("uint8", 0, 255)


LONGEST_NAME = 40  # characters of a field in a message; a longer name, or one that is not an identifier, may be data

# A plain tuple, because decoding makes one for every value and a message needs at most one.
JsonPath: TypeAlias = tuple["JsonPath | None", str | int | None]  # the parent's, and a name, index, or None in a map


def spelled(path: JsonPath) -> str:
    """The path as messages show it: Data.ClaimInfoStateList[0].PodUIDs[…]"""
    steps: list[str] = []
    above: JsonPath | None = path
    while above is not None:
        above, step = above
        steps.append(f".{shown(step)}" if isinstance(step, str) else f"[{'…' if step is None else step}]")
    return "".join(reversed(steps)).strip(".") or "the file"


def shown(name: str) -> str:
    """A member's name if it looks like a field, otherwise "…"."""
    return name if name == "" or (name.isidentifier() and len(name) <= LONGEST_NAME) else "…"


@dataclass(slots=True)
class Decoded:
    """The result of a decode. If `problems` is empty, Go would have returned no error."""

    value: Any  # what Go would have
    problems: list[str] = field(default_factory=list)
    unknown: list[JsonPath] = field(default_factory=list)  # members that Go ignores
    repeated: list[JsonPath] = field(default_factory=list)  # members that are given twice

    def wrong(self, path: JsonPath, wanted: str) -> None:
        """Note a value that does not fit; decoding continues."""
        self.problems.append(f"{spelled(path)} is not {wanted}")
