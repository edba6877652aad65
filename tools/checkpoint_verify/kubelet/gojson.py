"""Decoding a JSON tree into Go types the way encoding/json does it, oddities included.

A value of the wrong type is noted and decoding goes on, so that the fields after it are still filled:
kubelet's choice of the form to try next depends on them.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field

from .gotypes import Bytes, Custom, GoType, Integer, Map, Pointer, Slice, String, Struct, UnmarshalError, Value, zero
from .syntax import Node, Number, Object, fold, unquote

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII)


@dataclass(slots=True)
class Decoded:
    """What a decode left behind. `problems` empty means that Go would have returned no error."""

    value: Value
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)


def decode(gotype: GoType, node: Node, preset: Value) -> Decoded:
    """Decode `node` over `preset`, which is changed in place where it is a struct."""
    decoder = _Decoder(Decoded(preset))
    try:
        decoder.result.value = decoder.into(gotype, node, preset)
    except UnmarshalError as refusal:
        decoder.note(str(refusal))
    return decoder.result


class _Decoder:
    def __init__(self, result: Decoded) -> None:
        self.result = result
        self._path: list[str] = []

    def note(self, problem: str) -> None:
        place = ".".join(self._path)
        self.result.problems.append(f"{place}: {problem}" if place else problem)

    def into(self, gotype: GoType, node: Node, old: Value) -> Value:
        """The value after assigning `node` to a variable that holds `old`."""
        match gotype:
            case Custom(unmarshal=unmarshal):
                return unmarshal(node)
            case Struct():
                return self._struct(gotype, node, old)
            case Map():
                return None if node is None else self._map(gotype, node, old)
            case Slice():
                return None if node is None else self._slice(gotype, node, old)
            case Pointer(target=target):
                return None if node is None else self.into(target, node, zero(target) if old is None else old)
            case Bytes():
                return None if node is None else self._bytes(node, old)
            case String():
                return old if node is None else self._string(node, old)
            case Integer():
                return old if node is None else self._integer(gotype, node, old)

    def _struct(self, struct: Struct, node: Node, old: Value) -> Value:
        if node is None:
            return old
        if not isinstance(node, Object):
            return self._wrong("an object", node, old)
        exact = {field.json or field.name: field for field in struct.fields}
        folded = {fold(name): field for name, field in exact.items()}
        seen: set[str] = set()
        for raw, value in node.members:
            name = unquote(raw)
            field = exact.get(name) or folded.get(fold(name))
            self._path.append(name)
            if field is None:
                self.result.unknown.append(".".join(self._path))
            else:
                if field.name in seen:
                    self.result.repeated.append(".".join(self._path))
                seen.add(field.name)
                old[field.name] = self.into(field.type, value, old[field.name])
            self._path.pop()
        return old

    def _map(self, gotype: Map, node: Node, old: Value) -> Value:
        if not isinstance(node, Object):
            return self._wrong("an object", node, old)
        result = {} if old is None else old
        seen: set[str] = set()
        for raw, value in node.members:
            name = unquote(raw)
            self._path.append(name)
            if name in seen:
                self.result.repeated.append(".".join(self._path))
            seen.add(name)
            # A map element always starts from zero, also where the key was there before.
            element = self.into(gotype.element, value, zero(gotype.element))
            key = self._key(gotype, name)
            if key is not None:
                result[key] = element
            self._path.pop()
        return result

    def _key(self, gotype: Map, name: str) -> str | int | None:
        if not gotype.integer_keys:
            return name
        if _INTEGER.fullmatch(name) and -(2**63) <= int(name) < 2**63:
            return int(name)
        self.note("the key is not an integer")
        return None

    def _slice(self, gotype: Slice, node: Node, old: Value) -> Value:
        if not isinstance(node, list):
            return self._wrong("an array", node, old)
        result = []
        for index, value in enumerate(node):
            self._path.append(str(index))
            # A slice decoded a second time reuses the elements it has.
            start = old[index] if old is not None and index < len(old) else zero(gotype.element)
            result.append(self.into(gotype.element, value, start))
            self._path.pop()
        return result

    def _bytes(self, node: Node, old: Value) -> Value:
        if isinstance(node, list):
            octet = Integer("uint8", 0, 255)
            return bytes(self._integer(octet, value, 0) if value is not None else 0 for value in node)
        if not isinstance(node, bytes):
            return self._wrong("base64 text", node, old)
        # Go skips line ends anywhere and ignores the spare bits of the last digit.
        text = unquote(node).replace("\r", "").replace("\n", "")
        if not _BASE64.fullmatch(text):
            self.note("not base64 in the standard alphabet with padding")
            return old
        return base64.b64decode(text)

    def _string(self, node: Node, old: Value) -> Value:
        return unquote(node) if isinstance(node, bytes) else self._wrong("a string", node, old)

    def _integer(self, gotype: Integer, node: Node, old: Value) -> Value:
        if not isinstance(node, Number):
            return self._wrong("an integer", node, old)
        # Unsigned types refuse any sign, "-0" too.
        signed = node.startswith("-") and gotype.lowest >= 0
        if signed or not _INTEGER.fullmatch(node) or not gotype.lowest <= int(node) <= gotype.highest:
            shown = node if len(node) < 40 else node[:40] + "…"
            self.note(f"{shown} is not {gotype}")
            return old
        return int(node)

    def _wrong(self, wanted: str, node: Node, old: Value) -> Value:
        self.note(f"{_called(node)} where kubelet wants {wanted}")
        return old


def _called(node: Node) -> str:
    match node:
        case Object():
            return "an object"
        case list():
            return "an array"
        case bytes():
            return "a string"
        case Number():
            return "a number"
        case None:
            return "null"
        case _:
            return "true or false"
