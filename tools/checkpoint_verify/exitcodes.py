"""The exit codes, the same for every subcommand. Scripts and timers branch on them, so they never change."""

from __future__ import annotations

GOOD = 0
DAMAGE = 1
USAGE = 2
COULD_NOT_LOOK = 3


class UsageError(Exception):
    """The arguments do not fit together; the exit code is USAGE."""


def worst(codes: list[int]) -> int:
    """The worst code: damage wins over "could not look", which wins over good."""
    return next((code for code in (DAMAGE, COULD_NOT_LOOK) if code in codes), GOOD)


def of(*, damaged: bool, unseen: bool, warned: bool = False, strict: bool = False) -> int:
    """The code for what was found; `strict` counts warnings as damage."""
    if damaged or (strict and warned):
        return DAMAGE
    return COULD_NOT_LOOK if unseen else GOOD
