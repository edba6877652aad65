"""JSON values as text for people: indented, not ASCII-escaped, and safe for a terminal."""

from __future__ import annotations

import json
from typing import Any


def pretty(value: Any) -> str:
    """Valid JSON, with every character escaped that a terminal could take for a command."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(letter if letter == "\n" or letter.isprintable() else _escaped(letter) for letter in text)


def compact(value: Any, limit: int = 60) -> str:
    """One value on one line, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    text = text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _escaped(letter: str) -> str:
    return json.dumps(letter)[1:-1]  # ASCII, with surrogate pairs if needed
