"""JSON text as Go's encoding/json sees it: first the grammar, then the values.

The tree keeps what Python's json module throws away and kubelet's checksum depends on: repeated
members, raw string bytes, the spelling of numbers. Nothing here recurses on input, so depth costs no stack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

MAX_DEPTH = 10_000  # levels; Go's scanner gives up beyond
MAX_SHOWN_DEPTH = 100  # levels; what plain() hands to printers and encoders, which do recurse
MAX_DIGITS = 4_000  # digits; Python refuses to turn much longer text into an int


class Number(str):
    """A number as it is spelled in the file."""

    __slots__ = ()


@dataclass(slots=True)
class Object:
    """A JSON object with its members in file order, repeated names included. Names are raw like strings."""

    members: list[tuple[bytes, Node]] = field(default_factory=list)
    pending: bytes = b""

    def get(self, folded: str) -> Node | Missing:
        """The last member whose name folds to this, as Go's last assignment wins."""
        found: Node | Missing = MISSING
        for raw, value in self.members:
            if fold(unquote(raw)) == folded:
                found = value
        return found


class Missing:
    """The type of MISSING: no such member, which is not the same as null."""


MISSING = Missing()

# A string is kept as the raw bytes between its quotes.
Node: TypeAlias = "Object | list[Node] | bytes | Number | bool | None"
Plain: TypeAlias = Any


class NotJSONError(Exception):
    """The bytes are not one JSON document. `reason` is a machine word, `offset` where reading stopped."""

    def __init__(self, reason: str, offset: int, document: Node | Missing = MISSING) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.reason = reason
        self.offset = offset
        self.document = document  # with trailing bytes: the whole document before them


class TooDeepError(Exception):
    """The document nests deeper than can be shown."""


_STRING = rb'"([^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+)'
_TOKEN = re.compile(
    rb"[ \t\r\n]*(?:" + _STRING + rb'"'
    rb"|(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    rb"|(true|false|null)"
    rb"|([{}\[\],:]))"
)
_SPACE = re.compile(rb"[ \t\r\n]*")
# What may stand at the end of a file that was cut inside a token.
_CUT_TOKEN = re.compile(
    _STRING + rb"(?:\\(?:u[0-9a-fA-F]{0,3})?)?|t|tr|tru|f|fa|fal|fals|n|nu|nul|-|[.eE][+-]?|", re.DOTALL
)
_LITERALS: dict[bytes, bool | None] = {b"true": True, b"false": False, b"null": None}
_STRING_TOKEN, _NUMBER_TOKEN, _LITERAL_TOKEN = 1, 2, 3


def parse(blob: bytes) -> Node:
    """The document in `blob`; raises NotJSONError, with reason truncated, trailing-bytes or not-json."""
    parser = _Parser(blob)
    document = parser.document()
    end = _end_of_space(blob, parser.position)
    if end != len(blob):
        raise NotJSONError("trailing-bytes", end, document)
    return document


class _Parser:
    def __init__(self, blob: bytes) -> None:
        self._blob = blob
        self._open: list[Object | list[Node]] = []
        self.position = 0

    def document(self) -> Node:
        while True:
            value = self._begin_value()
            if isinstance(value, Missing):
                continue
            finished = self._end_value(value)
            if not isinstance(finished, Missing):
                return finished

    def _begin_value(self) -> Node | Missing:
        """The next scalar or empty container; MISSING if a container was opened and a value follows in it."""
        start, kind, text = self._token()
        if kind == _STRING_TOKEN:
            return text
        if kind == _NUMBER_TOKEN:
            return Number(text.decode("ascii"))
        if kind == _LITERAL_TOKEN:
            return _LITERALS[text]
        if text not in b"{[":
            raise NotJSONError("not-json", start)
        container: Object | list[Node] = Object() if text == b"{" else []
        if len(self._open) >= MAX_DEPTH:
            raise NotJSONError("not-json", start)
        if self._take_if(b"}" if text == b"{" else b"]"):
            return container
        self._open.append(container)
        if isinstance(container, Object):
            container.pending = self._name()
        return MISSING

    def _end_value(self, value: Node) -> Node | Missing:
        """Give the value to its container, and that to its own while they close; the document at the end."""
        while self._open:
            container = self._open[-1]
            if isinstance(container, Object):
                container.members.append((container.pending, value))
            else:
                container.append(value)
            start, kind, text = self._token()
            if kind > _LITERAL_TOKEN and text == b",":
                if isinstance(container, Object):
                    container.pending = self._name()
                return MISSING
            if kind <= _LITERAL_TOKEN or text != (b"}" if isinstance(container, Object) else b"]"):
                raise NotJSONError("not-json", start)
            value = self._open.pop()
        return value

    def _name(self) -> bytes:
        start, kind, name = self._token()
        if kind != _STRING_TOKEN:
            raise NotJSONError("not-json", start)
        start, kind, text = self._token()
        if kind <= _LITERAL_TOKEN or text != b":":
            raise NotJSONError("not-json", start)
        return name

    def _token(self) -> tuple[int, int, bytes]:
        found = _TOKEN.match(self._blob, self.position)
        if found is None:
            raise self._failure()
        self.position = found.end()
        kind = found.lastindex or 0
        quote = 1 if kind == _STRING_TOKEN else 0
        return found.start(kind) - quote, kind, found.group(kind)

    def _take_if(self, closing: bytes) -> bool:
        position = _end_of_space(self._blob, self.position)
        if self._blob[position : position + 1] != closing:
            return False
        self.position = position + 1
        return True

    def _failure(self) -> NotJSONError:
        position = _end_of_space(self._blob, self.position)
        cut = _CUT_TOKEN.fullmatch(self._blob, position)
        return NotJSONError("truncated" if cut else "not-json", position)


def _end_of_space(blob: bytes, position: int) -> int:
    found = _SPACE.match(blob, position)
    return found.end() if found else position


_ESCAPE = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL
)
_SIMPLE_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_BAD_BYTES = dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")


def unquote(raw: bytes) -> str:
    """The Go string that a raw JSON string stands for; bad UTF-8 and lone surrogates become U+FFFD."""
    text = raw.decode("utf-8", "surrogateescape")
    if not text.isascii():
        text = text.translate(_BAD_BYTES)
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(found: re.Match[str]) -> str:
    high, low, unit, simple = found.groups()
    if simple:
        return _SIMPLE_ESCAPES.get(simple, simple)
    if high:
        return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    code = int(unit, 16)
    return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)


# The only two letters outside ASCII that Unicode folds onto ASCII ones.
_FOLDED = {0x17F: "S", 0x212A: "K"} | {ord(letter): letter.upper() for letter in "abcdefghijklmnopqrstuvwxyz"}


def fold(name: str) -> str:
    """The form in which Go compares member names that differ in letter case."""
    return name.translate(_FOLDED)


def plain(node: Node, depth: int = 0) -> Plain:
    """The tree as ordinary JSON values, the last of repeated members winning; raises TooDeepError."""
    if depth > MAX_SHOWN_DEPTH:
        raise TooDeepError
    if isinstance(node, Object):
        return {unquote(raw): plain(value, depth + 1) for raw, value in node.members}
    if isinstance(node, list):
        return [plain(value, depth + 1) for value in node]
    if isinstance(node, Number):
        return _plain_number(node)
    return unquote(node) if isinstance(node, bytes) else node


def _plain_number(number: Number) -> int | float | str:
    if len(number) > MAX_DIGITS:
        return str(number)
    if number.lstrip("-").isdigit():
        return int(number)
    value = float(number)
    return value if abs(value) != float("inf") else str(number)
