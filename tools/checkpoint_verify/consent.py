"""Asking before anything is changed: on a terminal; elsewhere --yes says it beforehand."""

from __future__ import annotations

import sys
from enum import Enum, auto

from .targets import UsageError


class Answer(Enum):
    """What came back."""

    YES = auto()
    NO = auto()
    INTERRUPTED = auto()  # Ctrl-C: nothing was changed, and the line says so already


def ask(question: str) -> Answer:
    try:
        print(f"{question} [y/N] ", end="", flush=True)
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        print("\nNothing was changed.")
        return Answer.INTERRUPTED
    return Answer.YES if answer.strip().lower() in ("y", "yes") else Answer.NO


def check_that_somebody_can_be_asked(instead: str, *, json: bool) -> None:
    """Raises UsageError where there is no terminal, or where the output is for a program."""
    if json or sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"not on a terminal, so nobody can be asked: give {instead}")
