"""A document as ordinary JSON values, for people and printers."""

from __future__ import annotations

from typing import Any, TypeAlias

from draState._kubelet.syntax import Node, Number, Object

MAX_SHOWN_DEPTH = 100  # levels; printers and encoders recurse
MAX_DIGITS = 4_000  # digits; Python refuses to turn much longer text into an int

Plain: TypeAlias = Any


class TooDeepError(Exception):
    """The document nests deeper than can be shown."""


def plain(node: Node, depth: int = 0) -> Plain:
    """The tree as ordinary JSON values, the last of repeated members winning; raises TooDeepError."""
    if depth > MAX_SHOWN_DEPTH:
        raise TooDeepError
    if isinstance(node, Object):
        return {name: plain(value, depth + 1) for name, value in node.members}
    if isinstance(node, list):
        return [plain(value, depth + 1) for value in node]
    if isinstance(node, Number):
        return _plain_number(node.text)
    return str(node) if isinstance(node, str) else node


def _plain_number(text: str) -> int | float | str:
    if len(text) > MAX_DIGITS:
        return text
    if text.lstrip("-").isdigit():
        return int(text)
    value = float(text)
    return value if abs(value) != float("inf") else text
