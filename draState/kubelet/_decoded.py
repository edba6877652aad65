"""The result of a decode: the value, the problems, and their places in the document.

A JsonPath never shows data: a map's key becomes "[…]", and an unknown name is shown only if it looks like a field.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

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
