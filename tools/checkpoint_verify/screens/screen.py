"""Output for people: plain lines here; terminal.py adds colour and fitting tables.

Rich is imported only for a terminal. Without it only the looks change. Before a change, it asks the user.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from functools import partial
from typing import TextIO

from ..exitcodes import UsageError
from .phrases import shown

BAD = "bold red"
ODD = "yellow"
FINE = "bold green"
FAINT = "dim"
STRONG = "bold"

MANY_ROWS = 2000  # of a table; more are not coloured: it would take long
GAP = 2  # between two columns of a table

Part = str | tuple[str, str]  # a text, or a text with one of the styles above


class Screen:
    """A pipe, a file or a simple terminal: every call writes lines of plain text."""

    is_terminal = False
    width: int | None = None  # in columns; None if lines may have any length

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, *parts: Part, indent: int = 0, label: str = "") -> None:
        """One paragraph; a terminal wraps it under its indent and label."""
        self.line(" " * indent, label, *parts)

    def line(self, *parts: Part) -> None:
        """One line that must never be wrapped, such as a command to copy."""
        self._stream.write("".join(map(text_of, parts)).rstrip() + "\n")

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """Names and values, one pair per line; pairs without a value are left out."""
        listed = [row for row in rows if row[1]]
        width = max((len(name) for name, _ in listed), default=0)
        for name, value in listed:
            self.say(value, indent=2, label=f"{name:<{width}}  ")

    def table(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[Part]],
        right: Sequence[str] = (),
        spare: Sequence[str] = (),
    ) -> None:
        """Columns; those with a heading in `right` are aligned to the right.

        `spare` are the headings of columns that are dropped, in this order, if the terminal is too narrow.
        """
        columns = [
            [(heading, FAINT), *column] for heading, column in zip(headings, zip(*rows, strict=True), strict=True)
        ]
        widths = {heading: max(map(self.cells, column)) for heading, column in zip(headings, columns, strict=True)}
        for heading in spare:
            if self.width is None or sum(widths.values()) + GAP * (len(widths) - 1) <= self.width:
                break
            widths.pop(heading, None)
        kept = [number for number, heading in enumerate(headings) if heading in widths]
        write = self.line if len(rows) < MANY_ROWS else partial(Screen.line, self)
        for row in zip(*(columns[number] for number in kept), strict=True):
            parts: list[Part] = []
            for cell, (heading, width) in zip(row, widths.items(), strict=True):
                space = " " * (width - self.cells(cell))
                parts += [" " * GAP if parts else "", *([space, cell] if heading in right else [cell, space])]
            write(*parts)
        if gone := [heading for heading in headings if heading not in widths]:
            self.say((f"(not shown, too narrow: {', '.join(gone)})", FAINT))

    def cells(self, part: Part) -> int:
        """How many columns a text takes."""
        return len(text_of(part))

    def json(self, text: str) -> None:
        """A JSON document."""
        self.line(text)


class _Nowhere(io.StringIO):
    """Forgets what is written to it."""

    def write(self, text: str, /) -> int:
        return len(text)


def screen(*, quiet: bool = False) -> Screen:
    """The screen for standard output."""
    if quiet:
        return Screen(_Nowhere())
    if _can_do_more(sys.stdout):
        try:
            from .terminal import Terminal  # noqa: PLC0415 - keeps rich optional, and pipes fast

            return Terminal(sys.stdout)
        except ImportError:
            pass
    return Screen(sys.stdout)


def complain(path: str, why: str) -> None:
    """Say on standard error what is wrong with a path."""
    print(f"checkpoint-verify: {shown(path)}: {why}", file=sys.stderr)


@contextmanager
def progress(what: str, every: int, *, wanted: bool = True) -> Iterator[Callable[[], None]]:
    """Counts calls on one line of standard error, if that is a terminal, and clears it at the end.

    It shows every so many calls, so nothing is shown if there is little to do.
    """
    done = 0
    visible = wanted and _can_do_more(sys.stderr)

    def step() -> None:
        nonlocal done
        done += 1
        if visible and done % every == 0:
            sys.stderr.write(f"\r{what}: {done:,}")
            sys.stderr.flush()

    try:
        yield step
    finally:
        if visible and done >= every:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class Answer(Enum):
    """The answer to a question. Unless it is YES, the screen already says that nothing was changed."""

    YES = auto()
    NO = auto()
    INTERRUPTED = auto()  # Ctrl-C


def ask(question: str) -> Answer:
    try:
        print(f"{question} [y/N] ", end="", flush=True)
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        print("\nNothing was changed.")
        return Answer.INTERRUPTED
    if answer.strip().lower() in ("y", "yes"):
        return Answer.YES
    print("Nothing was changed.")
    return Answer.NO


def check_that_a_user_can_answer(instead: str, *, json: bool) -> None:
    """Raises UsageError if there is no terminal, or if a program reads the output."""
    if json or sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"cannot ask for confirmation without a terminal; give {instead}")


def text_of(part: Part) -> str:
    return part if isinstance(part, str) else part[0]


def _can_do_more(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
