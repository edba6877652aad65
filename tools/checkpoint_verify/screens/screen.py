"""Output for people: plain lines here; terminal.py adds colour, fitting tables and a progress bar.

Rich is imported only for a terminal. Without it only the looks change. Before a change, it asks the user.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import TextIO

from ..exitcodes import UsageError

BAD = "bold red"
ODD = "yellow"
FINE = "bold green"
FAINT = "dim"
STRONG = "bold"

Part = str | tuple[str, str]  # a text, or a text with one of the styles above


class Screen:
    """A pipe, a file or a simple terminal: every call writes lines of plain text."""

    is_terminal = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, *parts: Part, indent: int = 0) -> None:
        """One line of parts."""
        self._stream.write(" " * indent + "".join(map(text_of, parts)) + "\n")

    def verbatim(self, text: str, style: str = "") -> None:
        """Text that must never be wrapped, such as a command to copy."""
        self._stream.write(text + "\n")

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """Names and values, one pair per line; pairs without a value are left out."""
        listed = [row for row in rows if row[1]]
        width = max((len(name) for name, _ in listed), default=0)
        for name, value in listed:
            self.say(f"{name:<{width}}  {value}", indent=2)

    def table(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[Part]],
        right: Sequence[int] = (),
        spare: Sequence[str] = (),
    ) -> None:
        """Columns; those whose number is in `right` are aligned to the right.

        `spare` are the headings of columns that are dropped, in this order, if the terminal is too narrow.
        """
        cells = [headings, *([text_of(cell) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            aligned = [
                cell.rjust(width) if number in right else cell.ljust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            self._stream.write("  ".join(aligned).rstrip() + "\n")

    def json(self, text: str) -> None:
        """A JSON document."""
        self.verbatim(text)


class _Nowhere(io.StringIO):
    """Forgets what is written to it."""

    def write(self, text: str, /) -> int:
        return len(text)


class Progress:
    """Receives the number of files ahead, then each file that is done. This one shows nothing."""

    def searched(self, directories: int) -> None:
        """This many directories have been searched; how many remain is unknown."""

    def expect(self, total: int) -> None:
        """This many more files have to be checked."""

    def step(self) -> None:
        """One file is done."""


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


@contextmanager
def progress(what: str, much: int, *, wanted: bool = True) -> Iterator[Progress]:
    """A bar on standard error if that is a terminal and there is much to do; otherwise nothing."""
    if wanted and _can_do_more(sys.stderr):
        try:
            from .terminal import bar  # noqa: PLC0415 - keeps rich optional, and pipes fast
        except ImportError:
            pass
        else:
            with bar(sys.stderr, what, much) as shown:
                yield shown
            return
    yield Progress()


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
