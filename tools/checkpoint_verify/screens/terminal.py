"""Output on a terminal, with rich: colour, lines wrapped at spaces, tables that fit.

No word is split: a key or path that is broken over two lines cannot be copied. A table that is too wide loses whole
columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.json import JSON
from rich.text import Text

from .screen import FAINT, Part, Screen, text_of

LONG_TEXT = 1 << 20  # more is not coloured: it would take long

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


def _console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, markup=False, emoji=False)
