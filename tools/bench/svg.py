"""Draws line and bar charts as small SVG files: text stays text, and every colour is readable on white and on black.

The background is transparent. No colour depends on the reader's colour scheme, because a page's theme and the system's
need not be the same, and an image sees only the system's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

GREY = "#757d87"  # text and axes
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
LETTER = 0.6  # the average width of a letter, as a share of the type size


class Line(NamedTuple):
    """A series of a chart, with its label at the last point."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: str
    width: float = 2.0
    dashed: bool = False


class Bar(NamedTuple):
    """One row of a bar chart."""

    label: str
    value: float
    colour: str


@dataclass
class Chart:
    """The size of the drawing and of its type, and what its axes mean."""

    title: str
    across: str = ""
    width: int = 800
    height: int = 520
    type_size: int = 24

    def lines(self, series: Sequence[Line]) -> str:
        """A line chart with two logarithmic axes."""
        points = [point for line in series for point in line.points]
        left = self.type_size * 3.6
        right = self.width - self._room(line.label for line in series) - self.type_size * 1.4
        top, bottom = self.type_size * 2.4, self.height - self.type_size * 3.1
        x = _Scale([at for at, _ in points], left + 12, right - 8)
        y = _Scale([value for _, value in points], bottom - 10, top + 10)
        parts = [self._text(self.type_size * 0.2, self.type_size * 1.1, self.title)]
        for value in _ticks(y.low, y.high):
            parts.append(_stroke([(left, y(value)), (right, y(value))], GREY, 1, opacity=0.35))
            parts.append(self._text(left - 8, y(value) + self.type_size * 0.35, _short(value), anchor="end"))
        for value in sorted({at for at, _ in points}):
            parts.append(self._text(x(value), bottom + self.type_size * 1.2, _short(value), anchor="middle"))
        parts.append(self._text((left + right) / 2, bottom + self.type_size * 2.6, self.across, anchor="middle"))
        ends = [y(line.points[-1][1]) for line in series]
        start = right + self.type_size * 0.9
        for line, end, label in zip(series, ends, self._spread(ends, bottom), strict=True):
            path = [(x(at), y(value)) for at, value in line.points]
            parts.append(_stroke(path, line.colour, line.width, dashed=line.dashed))
            parts += [
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{line.width * 1.4:.1f}" fill="{line.colour}"/>' for a, b in path
            ]
            parts.append(_stroke([(x(line.points[-1][0]) + 8, end), (start - 4, label)], line.colour, 1, opacity=0.7))
            parts.append(self._text(start, label + self.type_size * 0.35, line.label, colour=line.colour))
        return self._page(parts)

    def bars(self, rows: Sequence[Bar]) -> str:
        """A bar chart in the order of `rows`, with the value at the end of each bar."""
        step = self.type_size * 1.5
        left = self._room(row.label for row in rows) + self.type_size * 0.6
        longest = max(row.value for row in rows)
        length = self.width - left - self._room(_short(row.value) for row in rows) - self.type_size * 0.8
        self.height = round(self.type_size * 2.2 + step * len(rows))
        parts = [self._text(self.type_size * 0.2, self.type_size * 1.1, self.title)]
        for number, row in enumerate(rows):
            top = self.type_size * 1.9 + number * step
            line = top + self.type_size * 0.9
            size = max(1.0, row.value / longest * length)
            parts.append(self._text(left - 8, line, row.label, anchor="end", colour=row.colour))
            place = f'x="{left:.1f}" y="{top:.1f}" width="{size:.1f}" height="{step * 0.75:.1f}"'
            parts.append(f'<rect {place} fill="{row.colour}"/>')
            parts.append(self._text(left + size + 8, line, _short(row.value), colour=row.colour))
        return self._page(parts)

    def _room(self, labels: Iterable[str]) -> float:
        return max(len(label) for label in labels) * self.type_size * LETTER

    def _spread(self, wanted: Sequence[float], lowest: float) -> list[float]:
        """Heights near the wanted ones, at least a line of type apart, and none below `lowest`."""
        order = sorted(range(len(wanted)), key=lambda number: wanted[number])
        heights = [wanted[number] for number in order]
        for _ in range(200):
            for above in range(len(heights) - 1):
                overlap = self.type_size * 1.12 - (heights[above + 1] - heights[above])
                if overlap > 0:
                    heights[above] -= overlap / 2
                    heights[above + 1] += overlap / 2
        too_low = max(0.0, heights[-1] - lowest + self.type_size * 0.4)
        placed = dict(zip(order, (height - too_low for height in heights), strict=True))
        return [placed[number] for number in range(len(wanted))]

    def _text(self, x: float, y: float, text: str, *, anchor: str = "start", colour: str = GREY) -> str:
        return (
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text, quote=False)}</text>'
        )

    def _page(self, parts: Sequence[str]) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}"'
            f' height="{self.height}" role="img" font-family="{FONT}" font-size="{self.type_size}">'
        )
        return "\n".join([head, f"<title>{escape(self.title, quote=False)}</title>", *parts, "</svg>", ""])


class _Scale:
    """Places values on a logarithmic axis from `start` to `end`."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low, self.high = min(values), max(values)
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low) if self.high > self.low else 0.5
        return self._start + share * (self._end - self._start)


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 between them if there would be too few."""
    for digits in ((1,), (1, 3), (1, 2, 5)):
        exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [digit * 10.0**exponent for exponent in exponents for digit in digits]
        ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(ticks) >= 3:
            break
    return ticks


def _stroke(
    points: Sequence[tuple[float, float]], colour: str, width: float, *, dashed: bool = False, opacity: float = 1
) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{width * 2:g} {width * 2:g}"' if dashed else ""
    faint = f' opacity="{opacity}"' if opacity < 1 else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashes}{faint}/>'


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
