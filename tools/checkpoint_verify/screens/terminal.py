"""Output on a terminal, with rich: colour, lines wrapped at spaces, tables that fit, a progress bar.

No word is split: a key or path that is broken over two lines cannot be copied. A table that is too wide loses whole
columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.json import JSON
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from .screen import FAINT, Part, Progress, Screen, text_of

LONG_TEXT = 1 << 20  # more is not coloured: it would take long
MANY_DIRECTORIES = 500  # with fewer, the bar of a search would vanish before it could be read

_WORD = re.compile(r"(\S+)\s*")


class Terminal(Screen):
    """Adds colour, and wraps lines under their indent."""

    is_terminal = True

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._console = _console(stream)
        self.width = self._console.width

    def say(self, *parts: Part, indent: int = 0, label: str = "") -> None:
        """Lines broken at spaces only. The terminal wraps a word that is too long for a line."""
        before, text = Text.assemble(" " * indent, (label, FAINT)), Text.assemble(*parts)
        room = max(20, self._console.width - before.cell_len)
        for line in text.divide(list(_breaks(text.plain, room))) or [Text()]:
            line.rstrip()
            self._console.print(before + line, soft_wrap=True)
            before = Text(" " * before.cell_len)

    def line(self, *parts: Part) -> None:
        text = Text.assemble(*parts)
        text.rstrip()
        self._console.print(text, soft_wrap=True)

    def cells(self, part: Part) -> int:
        return cell_len(text_of(part))

    def json(self, text: str) -> None:
        if len(text) > LONG_TEXT:
            self.line(text)
        else:
            self._console.print(JSON(text, ensure_ascii=False), soft_wrap=True)


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
