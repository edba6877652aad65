"""Turns figures into a table, and two runs into a comparison."""

from __future__ import annotations

from typing import Any

Figures = dict[str, Any]


def table(figures: Figures) -> str:
    """Every comparison as one table, fastest first, each with its ratio to the floor."""
    parts = []
    for title, rows in figures["comparisons"].items():
        floor = rows.get("floor", {}).get("per_second")
        lines = [f"{title}", f"  {'':28}{'median':>12}{'p99':>12}{'per second':>12}{'x floor':>9}"]
        for name, row in sorted(rows.items(), key=lambda item: -item[1]["per_second"]):
            mark = "" if figures["durable"].get(name, True) else "  (not durable)"
            ratio = f"{row['per_second'] / floor:9.2f}" if floor else " " * 9
            lines.append(
                f"  {name:28}{row['median_us']:9.0f} µs{row['p99_us']:9.0f} µs{row['per_second']:12.1f}{ratio}{mark}"
            )
        parts.append("\n".join(lines))
    for title, values in figures["single"].items():
        shown = ", ".join(f"{name} {value:,.2f}" for name, value in values.items())
        parts.append(f"{title}\n  {shown}")
    return "\n\n".join(parts)


def comparison(old: Figures, new: Figures) -> str:
    """How each contender's rate, as a ratio to the floor of its own run, has changed."""
    lines = [f"{'':60}{'old':>8}{'new':>8}{'change':>9}   (rates as ratios to the floor of the same run)"]
    for title in old["comparisons"].keys() & new["comparisons"].keys():
        before, after = _ratios(old, title), _ratios(new, title)
        for name in sorted(before.keys() & after.keys()):
            change = after[name] / before[name] - 1
            lines.append(f"{title + ', ' + name:60}{before[name]:8.2f}{after[name]:8.2f}{change:+9.0%}")
    return "\n".join([lines[0], *sorted(lines[1:])])


def _ratios(figures: Figures, title: str) -> dict[str, float]:
    rows = figures["comparisons"][title]
    floor = rows["floor"]["per_second"] if "floor" in rows else 1.0
    return {name: row["per_second"] / floor for name, row in rows.items()}
