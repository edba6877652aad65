"""Draws dashboard.svg: the panels of dashboard.json in their places, filled with made-up numbers.

The picture shows the layout, not how a node behaves. Run it with: python tools/monitoring/picture.py
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
UNIT, ROW = 46, 24  # pixels of one column and one row of Grafana's grid
GAP = 8
HEADER = 44
POINTS = 72
LINES = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#96d98d", "#ffb357", "#ca95e5")
STATS = {"Nodes with damage": 1, "Damaged checkpoints": 2, "Agents serving": 1998}  # all others: 0
ROWS = (
    ("node-0417:9100", "/var/lib/agent/claims", "checksum-mismatch", "1"),
    ("node-0417:9100", "/var/lib/agent/claims", "nul-filled", "1"),
)
LABELS = {
    "instance": [f"node-{number:04}:8080" for number in (417, 1203, 88, 1764)],
    "directory": ["/var/lib/agent/claims"] * 4,
    "reason": ["checksum-mismatch", "nul-filled"],
    "driver_name": ["gpu.example.com", "nic.example.com"],
    "operation_name": ["PrepareResources", "UnprepareResources"],
    "phase": ["serving", "standby"],
}
# The end of each panel's axis.
SIZES: dict[str, float] = {
    "Damage found, by reason": 4,
    "Writes per second": 6000,
    "Write latency": 0.006,
    "Slowest disks": 0.4,
    "Failed writes": 2,
    "Waiting for locks": 0.03,
    "Repairs and quarantine": 2,
    "Claims in use": 16000,
    "Latency of kubelet's calls": 0.2,
    "Failed calls": 0.02,
    "Agents by phase": 2400,
    "State on disk": 20e6,
    "Leftovers and warnings": 8,
}
STEADY = {"Agents by phase", "State on disk", "Claims in use"}
RARE = {"Damage found, by reason", "Failed writes", "Repairs and quarantine", "Leftovers and warnings"}


def draw(dashboard: dict[str, Any]) -> str:
    """The whole picture."""
    panels = dashboard["panels"]
    width = 24 * UNIT + GAP
    height = HEADER + max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * ROW + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="11">',
        f"<title>{escape(dashboard['title'])}, with made-up numbers</title>",
        f'<rect width="{width}" height="{height}" fill="#111217"/>',
        _text(GAP * 2, 28, dashboard["title"], "#ccccdc", 17),
        _text(width - GAP * 2, 28, "drawn from dashboard.json with made-up numbers", "#8e8ea0", 11, anchor="end"),
    ]
    for panel in panels:
        parts += _panel(panel)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: dict[str, Any]) -> Iterator[str]:
    place = panel["gridPos"]
    x, y = place["x"] * UNIT + GAP, place["y"] * ROW + HEADER
    width, height = place["w"] * UNIT - GAP, place["h"] * ROW - GAP
    yield f'<g transform="translate({x},{y})">'
    yield f'<rect width="{width}" height="{height}" rx="3" fill="{_background(panel)}"/>'
    yield _text(10, 18, panel["title"], "#ffffff" if panel["type"] == "stat" else "#ccccdc", 12)
    if panel["type"] == "stat":
        yield _text(width / 2, height / 2 + 22, f"{STATS.get(panel['title'], 0):,}", "#ffffff", 32, anchor="middle")
    elif panel["type"] == "table":
        yield from _table(width)
    else:
        yield from _chart(panel, width, height)
    yield "</g>"


def _background(panel: dict[str, Any]) -> str:
    if panel["type"] != "stat":
        return "#181b1f"
    colours = {"green": "#37872d", "red": "#c4162a", "orange": "#fa6400", "blue": "#1f60c4"}
    defaults = panel["fieldConfig"]["defaults"]
    if "thresholds" not in defaults:
        return colours[defaults["color"]["fixedColor"]]
    value = STATS.get(panel["title"], 0)
    steps = [step["color"] for step in defaults["thresholds"]["steps"] if value >= (step["value"] or 0)]
    return colours[steps[-1]]


def _table(width: float) -> Iterator[str]:
    columns = [10, width * 0.24, width * 0.58, width * 0.88]
    for number, row in enumerate([("instance", "directory", "reason", "damaged"), *ROWS]):
        for x, word in zip(columns, row, strict=True):
            yield _text(x, 44 + number * 22, word, "#ccccdc" if number else "#6e9fff")


def _chart(panel: dict[str, Any], width: float, height: float) -> Iterator[str]:
    title = panel["title"]
    top, left, right, bottom = 30.0, 58.0, width - 12, height - 34
    largest = SIZES[title]
    for step in range(3):
        y = bottom - (bottom - top) * step / 2
        yield f'<path d="M{left} {y:.0f}H{right:.0f}" stroke="#2c3235"/>'
        shown = _shown(largest * step / 2, panel["fieldConfig"]["defaults"]["unit"])
        yield _text(left - 6, y + 4, shown, "#8e8ea0", 10, anchor="end")
    across = left
    for number, name in enumerate(_names(panel)):
        colour = LINES[number % len(LINES)]
        points = " ".join(
            f"{left + (right - left) * at / (POINTS - 1):.1f},{bottom - (bottom - top) * value:.1f}"
            for at, value in enumerate(_figures(title, number))
        )
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
        room = 16 + len(name) * 6.2
        if across + room <= width:
            yield f'<rect x="{across:.0f}" y="{height - 19}" width="9" height="3" fill="{colour}"/>'
            yield _text(across + 12, height - 14, name, "#ccccdc", 10)
        across += room


def _names(panel: dict[str, Any]) -> list[str]:
    """The legend: one line per target, or per value of the labels in its format."""
    names = []
    for target in panel["targets"]:
        labels = re.findall(r"{{(\w+)}}", target["legendFormat"])
        for values in zip(*(LABELS[label] for label in labels), strict=True) if labels else [()]:
            name = target["legendFormat"]
            for label, value in zip(labels, values, strict=True):
                name = name.replace(f"{{{{{label}}}}}", value)
            names.append(name)
    return names


def _figures(title: str, number: int) -> list[float]:
    """Between 0 and 1, the same at every call."""
    chance = random.Random(f"{title} {number}")
    size = 0.8 / (1 + number * 0.9)
    if title in RARE:
        moment = chance.randrange(10, POINTS - 20)
        size = (0.5, 0.25)[number] if number < 2 else 0.0
        return [size if moment <= at < moment + 9 else 0.0 for at in range(POINTS)]
    if title == "Agents by phase":
        return [(1998 / 2400, 2 / 2400, 1997 / 2400)[number]] * POINTS
    noise = 0.01 if title in STEADY else 0.09
    phase = chance.uniform(0, 6)
    return [size * (0.9 + noise * math.sin(at / 9 + phase) + chance.uniform(-noise, noise) / 2) for at in range(POINTS)]


def _shown(value: float, unit: str) -> str:
    if unit == "s":
        return "0 s" if not value else f"{value:.2g} s" if value >= 0.1 else f"{value * 1000:.2g} ms"
    if unit == "percentunit":
        return f"{value:.1%}"
    if unit == "bytes":
        return f"{value / 1e6:.1f} MB"
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.1f}"


def _text(x: float, y: float, words: str, colour: str, size: int = 11, *, anchor: str = "start") -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" fill="{colour}" font-size="{size}"'
    return f'<text {place} text-anchor="{anchor}">{escape(words)}</text>'


if __name__ == "__main__":
    content = json.loads((HERE / "dashboard.json").read_text(encoding="utf-8"))
    (HERE / "dashboard.svg").write_text(draw(content), encoding="utf-8")
