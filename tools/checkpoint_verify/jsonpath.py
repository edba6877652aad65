"""Places in a JSON document, written as `$.data.pods[1]`: diff prints what changed there, and --mask hides it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_STEP = re.compile(
    r"""(?P<deep>\.\.)(?P<deep_name>[^.\[\]*]+)     # ..name: at any depth
      | \.(?P<name>[^.\[\]*]+)                       # .name
      | \[(?P<index>\d+)\]                           # [3]
      | \["(?P<quoted>(?:[^"\\]|\\.)*)"\]            # ["a name with dots"]
      | (?P<every>\.\*|\[\*\])                       # .* or [*]
    """,
    re.VERBOSE,
)


class Step(NamedTuple):
    """One step down: to a member, an item or all of them (None), or with `deep` from any depth."""

    to: str | int | None
    deep: bool = False


def step_below(path: str, step: str | int) -> str:
    """The path one step further down."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if _PLAIN.fullmatch(step) else f"{path}[{json.dumps(step, ensure_ascii=False)}]"


def parse(text: str) -> tuple[Step, ...]:
    """The steps of a pattern such as `$.data.token`, `$.data.pods[*].name`, `$..password`. Raises ValueError."""
    steps = []
    place = 1
    while text.startswith("$") and place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            break
        steps.append(_step(found))
        place = found.end()
    if not steps or place != len(text):
        raise ValueError(f"{text!r} is not a path; write $.data.token, $.data.pods[*].name or $..password")
    return tuple(steps)


def replace(value: Any, steps: tuple[Step, ...], by: Any) -> int:
    """Put `by` in every place that the steps lead to; returns the number of places."""
    step, rest = steps[0], steps[1:]
    count = 0
    for name in _matching(value, step):
        if rest:
            count += replace(value[name], rest, by)
        else:
            value[name] = by
            count += 1
    if step.deep:
        count += sum(replace(inner, steps, by) for inner in _inner(value))
    return count


def _step(found: re.Match[str]) -> Step:
    if found["deep"]:
        return Step(found["deep_name"], deep=True)
    if found["index"]:
        return Step(int(found["index"]))
    if found["quoted"] is not None:
        return Step(json.loads(f'"{found["quoted"]}"'))
    return Step(found["name"])


def _matching(value: Any, step: Step) -> Iterator[Any]:
    if isinstance(value, dict):
        if step.to is None:
            yield from list(value)
        elif step.to in value:
            yield step.to
    elif isinstance(value, list):
        if step.to is None:
            yield from range(len(value))
        elif isinstance(step.to, int) and step.to < len(value):
            yield step.to


def _inner(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []


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


MASKED = "(masked)"


class Masks:
    """The patterns of the command line, and how often each has matched."""

    def __init__(self, patterns: list[str]) -> None:
        """Raises ValueError for a pattern that is not a path."""
        self._steps = {pattern: parse(pattern) for pattern in patterns}
        self._hits = dict.fromkeys(patterns, 0)

    def __bool__(self) -> bool:
        return bool(self._steps)

    def apply(self, document: dict[str, Any]) -> None:
        """Mask the document in place. `$` is the document itself, as `show --json` prints it: $.data.token"""
        for pattern, steps in self._steps.items():
            self._hits[pattern] += replace(document, steps, MASKED)

    @property
    def missed(self) -> list[str]:
        """The patterns that matched nothing."""
        return [pattern for pattern, hits in self._hits.items() if not hits]
