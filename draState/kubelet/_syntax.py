"""Parses JSON as Go's encoding/json does: first the grammar, then the values.

The tree keeps details that Python's json module drops and kubelet's verdict depends on: repeated members, the
spelling of numbers, whether a string was escaped. Nothing here recurses, so deep input costs no stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

MAX_DEPTH = 10_000  # levels; beyond that Go's scanner gives up


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written: for Go, 1.0 and 1e3 are not integers."""

    text: str  # its digits


class Escaped(str):
    """A string written with escapes; the value is the unescaped text."""

    __slots__ = ()


@dataclass(slots=True)
class Object:
    """A JSON object with its members in file order, repeated names included."""

    members: list[tuple[str, Node]] = field(default_factory=list)

    def get(self, folded: str) -> Node | Missing:
        """The last member whose name folds to `folded`: in Go the last assignment wins."""
        found: Node | Missing = MISSING
        for name, value in self.members:
            if fold(name) == folded:
                found = value
        return found

    def names(self) -> list[str]:
        """The names of all members, folded."""
        return [fold(name) for name, _ in self.members]


class Missing:
    """The type of MISSING: no such member, which is not the same as null."""


MISSING = Missing()

Node: TypeAlias = Object | list["Node"] | str | Number | bool | None  # a JSON value


class NotJSONError(Exception):
    """The bytes are not one JSON document. `reason` is a machine word, `offset` the byte at which reading stopped."""

    def __init__(self, reason: str, offset: int, document: Node | Missing = MISSING) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.reason = reason
        self.offset = offset
        self.document = document  # with trailing bytes: the complete document before them


def parse(blob: bytes) -> Node:
    """Parse `blob`; raises NotJSONError with reason truncated, trailing-bytes or not-json."""
    text = _decoded(blob)
    try:
        document, end = _document(text)
    except NotJSONError as stopped:
        raise NotJSONError(stopped.reason, _offset(blob, stopped.offset)) from None
    if end != len(text):
        raise NotJSONError("trailing-bytes", _offset(blob, end), document)
    return document


def _offset(blob: bytes, position: int) -> int:
    """Convert a position in characters to one in bytes; a bad byte is one character."""
    before = blob.decode("utf-8", "surrogateescape")[:position]
    return len(before.encode("utf-8", "surrogateescape"))


_BAD_BYTES = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")


def _decoded(blob: bytes) -> str:
    """Decode UTF-8. Every bad byte becomes its own U+FFFD; "replace" would merge some."""
    try:
        return blob.decode("utf-8")
    except UnicodeDecodeError:
        return blob.decode("utf-8", "surrogateescape").translate(_BAD_BYTES)


_SPACE = r"[ \t\r\n]*+"
_STRING = r'"([^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+)'
_NUMBER = r"(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)"
_VALUE = rf'(?:(?:{_STRING}"|{_NUMBER}|(true|false|null)){_SPACE}(,)?|([{{\[]))'
# One match takes a member or an element with the comma after it, or a closing bracket: fewer matches are faster.
_MEMBER = re.compile(rf'{_SPACE}(?:{_STRING}"{_SPACE}:{_SPACE}{_VALUE}|(\}}){_SPACE}(,)?)')
_ELEMENT = re.compile(rf"{_SPACE}(?:(){_VALUE}|(\]){_SPACE}(,)?)")
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}

_Add = Callable[[Any], None]


def _document(text: str) -> tuple[Node, int]:
    """The document, and the end of it and the white space after it. Positions are in characters."""
    root: list[Node] = []
    add: _Add = root.append
    above: list[tuple[_Add, re.Pattern[str]]] = []
    pattern, position = _ELEMENT, 0
    may_add, may_close = True, False
    while True:
        found = pattern.match(text, position)
        if found is None:
            raise _stopped(text, position, in_object=pattern is _MEMBER and may_add)
        name, string, number, literal, comma, opening, closing, closing_comma = found.groups()
        if not (may_close if closing else may_add):
            raise NotJSONError("not-json", _after_space(text, position))
        position = found.end()
        if closing:
            add, pattern = above.pop()
            comma = closing_comma
        else:
            value: Node
            if string is not None:
                value = Escaped(_unescaped(string)) if "\\" in string else string
            elif opening:
                value = Object() if opening == "{" else []
            else:
                value = _LITERALS[literal] if number is None else Number(number)
            if pattern is _MEMBER:
                add((_unescaped(name) if "\\" in name else name, value))
            else:
                add(value)
            if opening:
                if len(above) >= MAX_DEPTH:
                    raise NotJSONError("not-json", position - 1)
                above.append((add, pattern))
                add = value.members.append if isinstance(value, Object) else value.append  # type: ignore[union-attr]
                pattern = _MEMBER if opening == "{" else _ELEMENT
                may_add = may_close = True
                continue
        if not above:
            return root[0], position - 1 if comma else position
        may_add, may_close = bool(comma), not comma


_SKIPPED = re.compile(_SPACE)
_NAME = re.compile(_STRING + '"')
# The possible ends of a file that was cut inside a token.
_CUT_TOKEN = re.compile(_STRING + r"(?:\\(?:u[0-9a-fA-F]{0,3})?)?|t|tr|tru|f|fa|fal|fals|n|nu|nul|-|[.eE][+-]?|")


def _stopped(text: str, position: int, in_object: bool) -> NotJSONError:
    """Find out why there was no match: try the parts of a member one by one."""
    position = _after_space(text, position)
    name = _NAME.match(text, position) if in_object else None
    if name:
        position = _after_space(text, name.end())
        if text[position : position + 1] == ":":
            position = _after_space(text, position + 1)
        elif position < len(text):
            return NotJSONError("not-json", position)
    return NotJSONError("truncated" if _CUT_TOKEN.fullmatch(text, position) else "not-json", position)


def _after_space(text: str, position: int) -> int:
    found = _SKIPPED.match(text, position)
    return found.end() if found else position


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


def _unescaped(raw: str) -> str:
    """Unescape a string; lone surrogates become U+FFFD. The grammar is checked, so Python and Go agree."""
    text: str = json.loads(f'"{raw}"')
    return text.translate(_SURROGATES) if _SURROGATE.search(raw) else text


# The only two letters outside ASCII that Unicode folds to ASCII letters.
_FOLDED = {0x17F: "S", 0x212A: "K"} | {ord(letter): letter.upper() for letter in "abcdefghijklmnopqrstuvwxyz"}


def fold(name: str) -> str:
    """The form in which Go compares member names that differ in letter case."""
    return name.translate(_FOLDED)
