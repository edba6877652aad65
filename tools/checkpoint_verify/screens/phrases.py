"""Paths, sizes, ages, counts, JSON values and commands as text that is safe for any terminal and any log."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from checkpointmanager.format import Header

_program = "checkpoint-verify"
_UNITS = ("B", "kB", "MB", "GB", "TB")
_NAMED = 3  # values on one line
_AGES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def shown(text: str) -> str:
    """The text with control characters, and bytes that are not UTF-8, escaped. A file name may contain both."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def quoted(path: str) -> str:
    """The path quoted for a shell, to be copied into a command."""
    if path.startswith("-"):
        path = f"./{path}"
    if path.isprintable():
        return shlex.quote(path)
    inside = "".join(letter if letter.isprintable() else _in_shell(letter) for letter in path.replace("\\", "\\\\"))
    return "$'" + inside.replace("'", "\\'") + "'"


def command(what: str, path: str) -> str:
    """A command of this tool to copy: it begins with the name that the tool was called by."""
    return f"{_program} {what} {quoted(path)}"


def call_it(program: str) -> None:
    """Set the beginning of every command."""
    global _program  # noqa: PLW0603 - a process is called once
    _program = program


def move_away(path: str) -> str:
    """A command that moves a file or folder where no agent finds it. The time in the name keeps earlier ones."""
    return f"mv {quoted(path)} {quoted('/root/' + base_name(path))}.$(date +%s)"


def shortened(text: str, width: int) -> str:
    """At most `width` characters, cut in the middle, where a path says least."""
    if len(text) <= width:
        return text
    end = (width - 1) * 2 // 3
    return text[: width - 1 - end] + "…" + text[len(text) - end :]


def sentence(text: str) -> str:
    """The text with a capital letter at the start."""
    return text[:1].upper() + text[1:]


def some(values: Sequence[str]) -> str:
    """The first values, and how many more there are."""
    more = f" and {len(values) - _NAMED:,} more" if len(values) > _NAMED else ""
    return ", ".join(map(shown, values[:_NAMED])) + more


def moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def generation(header: Header) -> str:
    """Which one it is, and from when."""
    return f"generation {header.generation}, written {moment(header.written)}"


def count(number: int, noun: str, plural: str = "") -> str:
    """ "1 file", "12,000 files"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(octets: int) -> str:
    amount, unit = float(octets), 0
    while amount >= 999.5 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.3g} {_UNITS[unit]}" if unit else f"{octets} B"


def age(seconds: float) -> str:
    """In the largest unit that fits: "3 d", "14 min". "ahead" if the clock was set back."""
    if seconds < -1:
        return "ahead"
    for length, unit in _AGES:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "0 s"


def base_name(path: str) -> str:
    return os.path.basename(path.rstrip("/")) or path


def pretty_json(value: Any) -> str:
    """Valid JSON, with every character escaped that a terminal could take for a command."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(letter if letter == "\n" or letter.isprintable() else _escaped_in_json(letter) for letter in text)


def compact_json(value: Any, limit: int = 60) -> str:
    """One value on one line, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    text = text if text.isprintable() else "".join(c if c.isprintable() else _escaped_in_json(c) for c in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _escaped(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that Python could not decode
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _in_shell(letter: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(letter))


def _escaped_in_json(letter: str) -> str:
    return json.dumps(letter)[1:-1]  # ASCII, with surrogate pairs if needed
