"""Asks for confirmation before a change. Without a terminal, the user has to pass --yes instead."""

from __future__ import annotations

import sys
from enum import Enum, auto

from .targets import UsageError


class Answer(Enum):
    """The answer to a question."""

    YES = auto()
    NO = auto()
    INTERRUPTED = auto()  # Ctrl-C: nothing was changed, and the screen already says so


def ask(question: str) -> Answer:
    try:
        print(f"{question} [y/N] ", end="", flush=True)
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        print("\nNothing was changed.")
        return Answer.INTERRUPTED
    return Answer.YES if answer.strip().lower() in ("y", "yes") else Answer.NO


def check_that_a_user_can_answer(instead: str, *, json: bool) -> None:
    """Raises UsageError if there is no terminal, or if a program reads the output."""
    if json or sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"cannot ask for confirmation without a terminal; give {instead}")
