"""Output on a terminal, with rich: colour, lines wrapped at spaces, tables that fit, a progress bar.

No word is split: a key or path that is broken over two lines cannot be copied. A table that is too wide loses whole
columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.json import JSON
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from .screen import FAINT, Part, Progress, Screen, text_of

MANY_ROWS = 2000  # more are not coloured: it would take long
LONG_TEXT = 1 << 20  # more is not coloured
MANY_DIRECTORIES = 500  # with fewer, the bar of a search would vanish before it could be read
GAP = 2  # columns between two columns of a table


_WORD = re.compile(r"(\S+)\s*")


class Terminal(Screen):
    """Adds colour, and wraps lines under their indent."""

    is_terminal = True

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._console = _console(stream)

    def say(self, *parts: Part, indent: int = 0) -> None:
        self._wrapped(Text(" " * indent), Text.assemble(*parts))

    def verbatim(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style), soft_wrap=True)

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        listed = [row for row in rows if row[1]]
        width = max((len(name) for name, _ in listed), default=0)
        for name, value in listed:
            self._wrapped(Text.assemble((f"  {name:<{width}}  ", FAINT)), Text(value))

    def table(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[Part]],
        right: Sequence[int] = (),
        spare: Sequence[str] = (),
    ) -> None:
        widths = {
            heading: max((cell_len(text_of(row[number])) for row in rows), default=0)
            for number, heading in enumerate(headings)
        }
        widths = {heading: max(width, cell_len(heading)) for heading, width in widths.items()}
        gone = []
        for heading in spare:
            if sum(widths.values()) + GAP * (len(widths) - 1) <= self._console.width:
                break
            if widths.pop(heading, None):
                gone.append(heading)
        kept = [number for number, heading in enumerate(headings) if heading in widths]
        shown = [[row[number] for number in kept] for row in rows]
        aligned = [place for place, number in enumerate(kept) if number in right]
        if len(rows) > MANY_ROWS:
            super().table(list(widths), shown, aligned)
        else:
            self._rows([[(heading, FAINT) for heading in widths], *shown], list(widths.values()), aligned)
        if gone:
            left_out = [heading for heading in headings if heading in gone]
            self.say((f"(not shown, too narrow: {', '.join(left_out)})", FAINT))

    def json(self, text: str) -> None:
        if len(text) > LONG_TEXT:
            self.verbatim(text)
        else:
            self._console.print(JSON(text, ensure_ascii=False), soft_wrap=True)

    def _rows(self, rows: Sequence[Sequence[Part]], widths: list[int], right: Sequence[int]) -> None:
        for row in rows:
            line = Text()
            for number, (part, width) in enumerate(zip(row, widths, strict=True)):
                cell = Text(part) if isinstance(part, str) else Text(*part)
                space = " " * (width - cell.cell_len)
                line.append(" " * GAP if number else "")
                line = line + space + cell if number in right else line + cell + space
            line.rstrip()
            self._console.print(line, soft_wrap=True)

    def _wrapped(self, before: Text, text: Text) -> None:
        """Lines broken at spaces only. The terminal wraps a word that is too long for a line."""
        room = max(20, self._console.width - before.cell_len)
        for line in text.divide(list(_breaks(text.plain, room))) or [Text()]:
            line.rstrip()
            self._console.print(before + line, soft_wrap=True)
            before = Text(" " * before.cell_len)


def _breaks(plain: str, room: int) -> Iterator[int]:
    """Where lines begin, so that none is longer than `room`, unless a single word is."""
    start = 0
    for word in _WORD.finditer(plain):
        if word.start() > start and cell_len(plain[start : word.start()] + word[1]) > room:
            start = word.start()
            yield start


@contextmanager
def bar(stream: TextIO, what: str, much: int) -> Iterator[Progress]:
    """A progress bar that appears only if there is much to do, and disappears at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = Bar(*columns, console=_console(stream), transient=True)
    progress = _BarProgress(shown, what, much)
    try:
        yield progress
    finally:
        progress.end()


class _BarProgress(Progress):
    def __init__(self, shown: Bar, what: str, much: int) -> None:
        self._bar = shown
        self._what = what
        self._much = much
        self._every = max(1, much // 20)  # steps between two updates
        self._task: TaskID | None = None
        self._total = 0
        self._done = 0

    def searched(self, directories: int) -> None:
        if directories < MANY_DIRECTORIES or directories % 64:
            return
        self._show("searching", None, directories)

    def expect(self, total: int) -> None:
        self._total += total
        if self._task is not None or self._total >= self._much:
            self._show(self._what, self._total, self._done)

    def step(self) -> None:
        self._done += 1
        if self._task is not None and not self._done % self._every:
            self._bar.update(self._task, completed=self._done)

    def end(self) -> None:
        if self._task is not None:
            self._bar.stop()

    def _show(self, what: str, total: int | None, done: int) -> None:
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task(what, total=total)
        self._bar.update(self._task, description=what, total=total, completed=done)


def _console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, markup=False, emoji=False)
