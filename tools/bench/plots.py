"""Draws the plots: two with five lines for the project's README, readable on a phone, and four with all contenders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from .contenders import BARE, FLOOR, KUBELET, OURS
from .report import Figures
from .slowdisk import DELAY_MS
from .svg import GREY, Bar, Chart, Line

# Each colour has a contrast of at least 3.5 to white and to black.
COLOURS = {OURS: "#2a7de1", FLOOR: GREY, "sqlite3": "#1a8f4c", KUBELET: "#e5484d", BARE: "#a15cd6"}
OTHERS = ("#0e8a8a", "#b5651d", "#d6409f", "#5f7f1f", "#6c7fd8", "#b07d00", "#c2410c", "#9a6b3f")
Series = dict[str, list[tuple[float, float]]]


def draw(figures: Figures, output: Path) -> None:
    """Write all plots into a folder."""
    output.mkdir(parents=True, exist_ok=True)
    titles = list(figures["comparisons"])
    sizes = {title: int(title.split()[1]) for title in titles if title.startswith("update, ") and "256" not in title}
    threads = {title: int(title.split()[3]) for title in titles if title.startswith("update, 256 present")}
    by_size = _series(figures, sizes, lambda row: row["median_us"] / 1000)
    by_threads = _series(figures, threads, lambda row: row["per_second"])
    for prefix, chart in (("readme-", _small), ("", _large)):
        for name, series, title, across in (
            ("update-by-size", by_size, "ms for one durable update (median)", "claims present"),
            ("update-by-threads", by_threads, "durable updates per second", "threads"),
        ):
            (output / f"{prefix}{name}.svg").write_text(chart(figures, series, title, across), encoding="utf-8")
    for start, name, title in (
        ("restart", "restart", "ms to open and to read everything"),
        ("slow disk", "slow-disk", f"ms for one durable update, each flush {DELAY_MS} ms slower"),
    ):
        if found := [each for each in titles if each.startswith(start)]:
            (output / f"{name}.svg").write_text(_bars(figures, found[-1], title), encoding="utf-8")


def _series(figures: Figures, titles: dict[str, int], value: Callable[[dict[str, float]], float]) -> Series:
    series: Series = {}
    for title, at in sorted(titles.items(), key=lambda item: item[1]):
        for name, row in figures["comparisons"][title].items():
            series.setdefault(name, []).append((at, value(row)))
    return series


def _small(figures: Figures, series: Series, title: str, across: str) -> str:
    lines = [
        Line(name, series[name], colour, 5 if name == OURS else 3, dashed=not figures["durable"][name])
        for name, colour in COLOURS.items()
        if name in series
    ]
    return Chart(title, across).lines(lines)


def _large(figures: Figures, series: Series, title: str, across: str) -> str:
    colours = _colours(list(series))
    lines = [
        Line(
            _label(figures, name), points, colours[name], 3.5 if name in COLOURS else 1.8, not figures["durable"][name]
        )
        for name, points in series.items()
    ]
    return Chart(title, across, width=900, height=620, type_size=18).lines(lines)


def _bars(figures: Figures, title: str, said: str) -> str:
    rows = sorted(figures["comparisons"][title].items(), key=lambda item: item[1]["median_us"])
    colours = _colours([name for name, _ in rows])
    bars = [Bar(_label(figures, name), row["median_us"] / 1000, colours[name]) for name, row in rows]
    return Chart(f"{said}: {title.partition(', ')[2]}", width=900, type_size=18).bars(bars)


def _colours(names: Sequence[str]) -> dict[str, str]:
    others = sorted(name for name in names if name not in COLOURS)
    return COLOURS | dict(zip(others, OTHERS, strict=False))


def _label(figures: Figures, name: str) -> str:
    return name if figures["durable"][name] else f"{name} (not durable)"
