"""JSON as Go's encoding/json understands it, as far as kubelet's file of claims needs it.

A type is a function from a JSON value, what the variable held before, and its place. Decoding goes over what was
there: null leaves text and numbers alone and empties lists and maps, and of a field given twice the last counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ._errors import KubeletStateInvalid


@dataclass(frozen=True, slots=True)
class Place:
    """Where decoding is, for errors; and the names of all fields that it did not know."""

    path: str
    unknown: set[str] = field(default_factory=set)

    def at(self, step: str) -> Place:
        return Place(f"{self.path}{step}", self.unknown)

    def wrong(self, wanted: str) -> KubeletStateInvalid:
        return KubeletStateInvalid(f"{self.path} is not {wanted}")


LONGEST_NAME = 40  # of a field in a message; whatever is longer, or no identifier, may be data

GoType = Callable[[Any, Any, Place], Any]


class _Number(str):
    """A number as it is spelled: to Go 1.0 and 1e3 are no integers."""

    __slots__ = ()


_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029\ufffd"}


def text_of(blob: bytes) -> str:
    """Every byte that is not UTF-8 becomes a surrogate of its own, and so a U+FFFD; "replace" would merge some."""
    return blob.decode("utf-8", "surrogateescape")


def parse(document: str, what: str) -> Any:
    """Objects are tuples of (name, value), so that a field given twice is seen; arrays are lists."""

    def refuse(_: str) -> Any:
        raise KubeletStateInvalid(f"{what} is not JSON: NaN and Infinity are no numbers")

    try:
        return json.loads(
            document, object_pairs_hook=tuple, parse_int=_Number, parse_float=_Number, parse_constant=refuse
        )
    except json.JSONDecodeError as error:
        where = f"reading stopped at character {error.pos} of {len(document)}" if document else "it is empty"
        raise KubeletStateInvalid(f"{what} is not JSON ({where})") from None
    except RecursionError:
        raise KubeletStateInvalid(f"{what} is nested too deeply") from None


def marshal(value: dict[str, Any]) -> str:
    """As json.Marshal writes it. What Go escapes and Python does not occurs in JSON only inside of strings."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def fold(name: str) -> str:
    """The form in which Go compares names: two letters outside ASCII are ASCII ones in another case."""
    return name.lower().replace("\u017f", "s")  # lower() knows the other one, U+212A


def text(node: Any, old: Any, place: Place) -> Any:
    if node is None:
        return "" if old is None else old
    if type(node) is not str:
        raise place.wrong("a string")
    return node.translate(_SURROGATES)


def pointer_to_text(node: Any, old: Any, place: Place) -> Any:
    return None if node is None else text(node, old, place)


def unsigned(bits: int) -> GoType:
    def decode(node: Any, old: Any, place: Place) -> Any:
        if node is None:
            return 0 if old is None else old
        # The length first: Python refuses to convert thousands of digits.
        if type(node) is not _Number or not node.isdigit() or len(node) > bits or int(node) >= 1 << bits:
            raise place.wrong(f"an unsigned integer of {bits} bits")
        return int(node)

    return decode


def slice_of(element: GoType) -> GoType:
    def decode(node: Any, old: Any, place: Place) -> Any:
        if node is None:
            return None
        if type(node) is not list:
            raise place.wrong("an array")
        before = [*(old or ()), *[None] * len(node)]  # Go decodes over the elements that are there
        return [element(value, before[index], place.at(f"[{index}]")) for index, value in enumerate(node)]

    return decode


def map_of(element: GoType) -> GoType:
    def decode(node: Any, old: Any, place: Place) -> Any:
        if node is None:
            return None
        if type(node) is not tuple:
            raise place.wrong("an object")
        # The key is data and has no place in an error.
        added = {name.translate(_SURROGATES): element(value, None, place.at("[…]")) for name, value in node}
        return {**(old or {}), **added}

    return decode


def struct(**fields: GoType) -> GoType:
    """A dict of the fields that were given, by their own names. Null and absent fields leave what was there."""
    names = {fold(name): name for name in fields}

    def decode(node: Any, old: Any, place: Place) -> Any:
        result = dict(old or {})
        if node is None:
            return result
        if type(node) is not tuple:
            raise place.wrong("an object")
        for given, value in node:
            if name := names.get(fold(given)):
                result[name] = fields[name](value, result.get(name), place.at(f".{name}"))
            else:
                place.unknown.add(given if given.isidentifier() and len(given) <= LONGEST_NAME else "…")
        return result

    return decode
