"""Prints steps: what will be done about each file, or was done, and what is still damaged after it."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Sequence
from typing import Any

from checkpointmanager.format import QUARANTINE

from .. import exitcodes
from ..findings.problem import MANY
from ..remedies.step import Step
from . import phrases
from .documents import path_members, print_document
from .screen import BAD, FAINT, FINE, ODD, Screen

_FULL = (errno.ENOSPC, errno.EDQUOT)


def code_of(steps: Sequence[Step], *, planned: bool) -> int:
    """A plan to change something is damage: there is still something to do."""
    return exitcodes.of(
        damaged=any(step.is_damaged or (planned and step.is_change) for step in steps),
        unseen=any(step.failed for step in steps),
    )


def print_steps_document(
    command: str, steps: Sequence[Step], *, planned: bool, blocked: str = "", interrupted: bool = False
) -> int:
    """One JSON document with every step; returns the exit code."""
    code = code_of(steps, planned=planned) or (exitcodes.COULD_NOT_LOOK if blocked else exitcodes.GOOD)
    members = {
        "dry_run": planned,
        "blocked": phrases.shown(blocked),
        "interrupted": interrupted,
        "steps": [_document(step) for step in steps],
    }
    print_document(command, code, members)
    return code


def verdict_of_steps(steps: Sequence[Step], *, planned: bool, interrupted: bool = False) -> tuple[str, str]:
    """The first line: what was done or will be, and what is still damaged after it."""
    changes = Counter(step.action.replace("-", " ") for step in steps if step.is_change)
    damaged = sum(step.is_damaged for step in steps)
    left = sum(step.is_open for step in steps) - damaged
    if not changes and not damaged and not left:
        return "GOOD: nothing to do", FINE
    will = "will be " if planned else ""
    parts = [f"{number:,} {will}{action}" for action, number in sorted(changes.items())]
    parts += [f"{damaged:,} {'will still be' if planned and changes else 'still'} DAMAGED"] if damaged else []
    parts += [f"{left:,} left as {'it is' if left == 1 else 'they are'}"] if left else []
    said = ", ".join(parts)
    if any(step.errno in _FULL for step in steps):
        said += "; the disk is full"
    if planned:
        return f"PLAN: {said}; nothing was changed", ODD
    return f"{'INTERRUPTED' if interrupted else 'DONE'}: {said}", BAD if damaged or left or interrupted else FINE


def print_steps(steps: Sequence[Step], screen: Screen, *, planned: bool) -> None:
    """Many steps of one sort are one line, as in verify's list; --json has each."""
    sorts: dict[tuple[str, ...], list[Step]] = {}
    for step in steps:
        sorts.setdefault((step.action, step.found.reason, step.plan.outcome if step.plan else ""), []).append(step)
    for same in sorts.values():
        if len(same) >= MANY:
            _print_many(same, screen, planned=planned)
            continue
        for step in same:
            path, detail = phrases.shown(step.target.path), phrases.shown(step.detail)
            screen.say(_word(step, planned=planned), f": {path}: {detail}")
            if not planned and step.quarantined:
                copy = phrases.shown(phrases.base_name(step.quarantined))
                screen.say((f"the former bytes are kept in {QUARANTINE}/{copy}", FAINT), indent=2)


def _print_many(same: list[Step], screen: Screen, *, planned: bool) -> None:
    first = same[0]
    where = f"{phrases.count(len(same), 'file')} in {phrases.shown(first.target.directory)}"
    some = ", ".join(phrases.shown(step.target.key or phrases.base_name(step.target.path)) for step in same[:3])
    reason = f"{first.found.reason}, " if first.found.reason else ""
    screen.say(_word(first, planned=planned), f": {where}: {reason}such as {some}")
    screen.say((f"the first: {phrases.shown(first.detail)}", FAINT), indent=2)
    if not planned and first.quarantined:
        screen.say((f"the former bytes are kept in {QUARANTINE}", FAINT), indent=2)


def _word(step: Step, *, planned: bool) -> tuple[str, str]:
    if step.action in ("good", "stays"):
        return step.action.replace("good", "good already"), FAINT
    if step.is_open:
        return ("will still be damaged" if planned else "still damaged") if step.is_damaged else "left as it is", BAD
    word = step.action.replace("-", " ")
    return f"will be {word}" if planned else word, FINE


def _document(step: Step) -> dict[str, Any]:
    return path_members(step.target.path) | {
        "key": step.target.key,
        "state": step.found.state,
        "reason": step.found.reason,
        "action": step.action,
        "detail": phrases.shown(step.detail),
        "quarantined": phrases.shown(step.quarantined),
    }
