"""Turns figures into Markdown, for the terminal and for the page, and two runs into a comparison."""

from __future__ import annotations

from collections.abc import Iterable

from .aims import Figures

VERDICTS = {True: "met", False: "**missed**", None: "not measured"}


def report(figures: Figures) -> str:
    """The aims, then every comparison, fastest first, each contender with its ratio to the floor."""
    machine = ", ".join(f"{name} {value}" for name, value in figures["machine"].items())
    aims = [
        (row["what"], row["aim"], "" if row["measured"] is None else f"{row['measured']:,.2f}", VERDICTS[row["met"]])
        for row in figures["aims"]
    ]
    parts = [machine, _table(("aim", "", "measured", ""), aims)]
    for title, rows in figures["comparisons"].items():
        floor = rows["floor"]["per_second"]
        lines = [
            (
                name if figures["durable"][name] else f"{name} (not durable)",
                *(f"{row[what]:,.0f}" for what in ("median_us", "p99_us", "longest_us", "per_second")),
                f"{row['per_second'] / floor:.2f}",
            )
            for name, row in sorted(rows.items(), key=lambda item: -item[1]["per_second"])
        ]
        parts.append(_table((title, "median µs", "p99 µs", "longest µs", "per second", "x floor"), lines))
    for title, values in {**figures["own"], **_by_contender(figures["syncs per change"])}.items():
        parts.append(_table((title, ""), [(name, f"{value:,.2f}") for name, value in values.items()]))
    return "\n\n".join(parts) + "\n"


def comparison(old: Figures, new: Figures) -> str:
    """How each contender's rate, as a ratio to the floor of its own run, has changed."""
    lines = []
    for title in sorted(old["comparisons"].keys() & new["comparisons"].keys()):
        before, after = (_ratios(figures, title) for figures in (old, new))
        for name in sorted(before.keys() & after.keys()):
            change = f"{after[name] / before[name] - 1:+.0%}"
            lines.append((title, name, f"{before[name]:.2f}", f"{after[name]:.2f}", change))
    return _table(("rates, as ratios to the floor of the same run", "", "old", "new", "change"), lines)


def _by_contender(syncs: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {f"syncs per change: {name}": stories for name, stories in syncs.items()}


def _ratios(figures: Figures, title: str) -> dict[str, float]:
    rows = figures["comparisons"][title]
    return {name: row["per_second"] / rows["floor"]["per_second"] for name, row in rows.items()}


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Aligned, so that a terminal shows it as well as a browser."""
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    padded = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    rule = " | ".join("-" * max(width, 3) for width in widths)
    return "\n".join(f"| {line} |" for line in [padded[0], rule, *padded[1:]])
