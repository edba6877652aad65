"""Places in a JSON document, written as `$.data.pods[1]`: diff prints them, and --mask selects by them."""

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


def below(path: str, step: str | int) -> str:
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
