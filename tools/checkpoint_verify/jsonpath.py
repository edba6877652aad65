"""Places in a JSON document, written as `$.data.pods[1]`, and what differs there. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
ADDED, REMOVED, CHANGED = "added", "removed", "changed"


class Change(NamedTuple):
    """One place that differs."""

    what: str
    path: str
    before: Any
    after: Any


def differences(before: Any, after: Any, path: str = "$") -> Iterator[Change]:
    """The changes in the order of the first document, additions last. Lists are compared by position."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            below = step_below(path, name)
            if name in after:
                yield from differences(value, after[name], below)
            else:
                yield Change(REMOVED, below, value, None)
        for name in after:
            if name not in before:
                yield Change(ADDED, step_below(path, name), None, after[name])
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            below = step_below(path, index)
            if index >= len(after):
                yield Change(REMOVED, below, before[index], None)
            elif index >= len(before):
                yield Change(ADDED, below, None, after[index])
            else:
                yield from differences(before[index], after[index], below)
    elif type(before) is not type(after) or before != after:
        yield Change(CHANGED, path, before, after)


def step_below(path: str, step: str | int) -> str:
    """The path one step further down."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if _PLAIN.fullmatch(step) else f"{path}[{json.dumps(step, ensure_ascii=False)}]"
