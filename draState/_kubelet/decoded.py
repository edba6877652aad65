"""What a decode left behind, and where in the document that was.

A JsonPath never holds data: a map's key is a "[…]", and a name that nobody knows is shown only if it looks like one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

LONGEST_NAME = 40  # of a field in a message; whatever is longer, or no identifier, may be data

# The path to what holds this, and the step from there: a member's name, an index, or None for a map's element.
# A plain tuple, because decoding makes one for every value and a message needs one at most.
JsonPath: TypeAlias = "tuple[JsonPath | None, str | int | None]"


def spelled(path: JsonPath) -> str:
    """The path as messages show it: Data.ClaimInfoStateList[0].PodUIDs[…]"""
    steps: list[str] = []
    above: JsonPath | None = path
    while above is not None:
        above, step = above
        steps.append(f".{shown(step)}" if isinstance(step, str) else f"[{'…' if step is None else step}]")
    return "".join(reversed(steps)).strip(".") or "the file"


def shown(name: str) -> str:
    """A member's name if it looks like one."""
    return name if name == "" or (name.isidentifier() and len(name) <= LONGEST_NAME) else "…"


@dataclass(slots=True)
class Decoded:
    """What a decode left behind. `problems` empty means that Go would have returned no error."""

    value: Any
    problems: list[str] = field(default_factory=list)
    unknown: list[JsonPath] = field(default_factory=list)
    repeated: list[JsonPath] = field(default_factory=list)

    def wrong(self, path: JsonPath, wanted: str) -> None:
        """Note a value that does not fit; decoding goes on."""
        self.problems.append(f"{spelled(path)} is not {wanted}")
