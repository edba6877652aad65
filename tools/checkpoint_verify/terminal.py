"""The screen of somebody who sits before it, made with rich. Imported only then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.json import JSON
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from .screen import FAINT, Part, Progress, Screen

MANY_ROWS = 2000  # more are not laid out: nobody reads them, and it takes long
LONG_TEXT = 1 << 20  # more is not coloured
MUCH_TO_DO = 5000  # files: less is done before a bar could be read


class Terminal(Screen):
    """Colour, and lines that are wrapped under their indent."""

    is_terminal = True

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._console = _console(stream)

    def say(self, *parts: Part, indent: int = 0) -> None:
        text = Text.assemble(*parts, overflow="fold")
        self._console.print(Padding(text, (0, 0, 0, indent), expand=False) if indent else text)

    def verbatim(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style), soft_wrap=True)

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        grid = Table.grid(padding=(0, 2))
        for name, value in rows:
            if value:
                grid.add_row(Text(name, FAINT), Text(value, overflow="fold"))
        self._console.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[Part]], right: str = "") -> None:
        if len(rows) > MANY_ROWS:
            super().table(headings, rows, right)
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=FAINT)
        for number, heading in enumerate(headings):
            aligned = str(number) in right
            table.add_column(heading, justify="right" if aligned else "left", no_wrap=aligned, overflow="fold")
        for row in rows:
            table.add_row(*(Text(part) if isinstance(part, str) else Text(*part) for part in row))
        self._console.print(table)

    def json(self, text: str) -> None:
        if len(text) > LONG_TEXT:
            self.verbatim(text)
        else:
            self._console.print(JSON(text, ensure_ascii=False), soft_wrap=True)


@contextmanager
def bar(stream: TextIO) -> Iterator[Progress]:
    """A progress bar that appears when there is much to do and is gone when it is done."""
    columns = (TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = Bar(*columns, console=_console(stream), transient=True)
    progress = _BarProgress(shown)
    try:
        yield progress
    finally:
        progress.end()


class _BarProgress(Progress):
    def __init__(self, shown: Bar) -> None:
        self._bar = shown
        self._task: TaskID | None = None
        self._total = 0
        self._done = 0

    def expect(self, total: int) -> None:
        self._total += total
        if self._task is not None:
            self._bar.update(self._task, total=self._total)
        elif self._total >= MUCH_TO_DO:
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total, completed=self._done)

    def step(self) -> None:
        self._done += 1
        if self._task is not None and not self._done % 256:
            self._bar.update(self._task, completed=self._done)

    def end(self) -> None:
        if self._task is not None:
            self._bar.stop()


def _console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, markup=False, emoji=False)
