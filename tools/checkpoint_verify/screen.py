"""What a person sees. Plain lines here; colour, tables that fit and progress on a terminal are terminal.py's.

Rich is only imported for a terminal, and nothing but looks is lost where it is not installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

BAD = "bold red"
ODD = "yellow"
FINE = "bold green"
FAINT = "dim"
STRONG = "bold"

Part = str | tuple[str, str]  # a text, or a text with one of the styles above


class Screen:
    """A pipe, a file, or a terminal that can do no more: every call is so many lines of plain text."""

    is_terminal = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, *parts: Part, indent: int = 0) -> None:
        """One line of parts."""
        self._stream.write(" " * indent + "".join(map(text_of, parts)) + "\n")

    def verbatim(self, text: str, style: str = "") -> None:
        """Text that must never be wrapped, such as a command that somebody copies."""
        self._stream.write(text + "\n")

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """Names and values, one below the other; what has no value is left out."""
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

        `spare` are the headings of columns that go, in this order, where a terminal is too narrow for all.
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


class Silence(Screen):
    """Where nothing is to be seen."""

    def say(self, *parts: Part, indent: int = 0) -> None:
        """Nothing."""

    def verbatim(self, text: str, style: str = "") -> None:
        """Nothing."""

    def table(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[Part]],
        right: Sequence[int] = (),
        spare: Sequence[str] = (),
    ) -> None:
        """Nothing."""


class Progress:
    """Told of the work ahead, then of each file. Nobody watches this one."""

    def searched(self, directories: int) -> None:
        """So many directories were looked through, with nobody knows how many to come."""

    def expect(self, total: int) -> None:
        """So many files, perhaps with more to come."""

    def step(self) -> None:
        """One is done."""


def screen(*, quiet: bool = False) -> Screen:
    """The screen for standard output."""
    if quiet:
        return Silence(sys.stdout)
    if _can_do_more(sys.stdout):
        try:
            from .terminal import Terminal  # noqa: PLC0415 - keeps rich optional, and pipes fast

            return Terminal(sys.stdout)
        except ImportError:
            pass
    return Screen(sys.stdout)


@contextmanager
def progress(*, wanted: bool) -> Iterator[Progress]:
    """A bar on the standard error of a terminal, once there is much to do; else nothing."""
    if wanted and _can_do_more(sys.stderr):
        try:
            from .terminal import bar  # noqa: PLC0415 - keeps rich optional, and pipes fast
        except ImportError:
            pass
        else:
            with bar(sys.stderr) as shown:
                yield shown
            return
    yield Progress()


def text_of(part: Part) -> str:
    return part if isinstance(part, str) else part[0]


def _can_do_more(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
