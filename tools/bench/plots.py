"""Three pictures of the figures, as PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.ticker import NullLocator

from .contenders import OURS
from .report import Figures

COLOURS = {OURS: "#1f6feb", "floor": "#57606a", "kubelet's way": "#cf222e"}
OTHERS = "#afb8c1"


def draw(figures: Figures, output: Path) -> None:
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "checkpointmanager"  # the same figures give the same file
    by_size(figures, output)
    by_threads(figures, output)
    restart(figures, output)


def by_size(figures: Figures, output: Path) -> None:
    """Time of one durable update against the number of claims present."""
    series: dict[str, list[tuple[int, float]]] = {}
    for title, rows in figures["comparisons"].items():
        if title.startswith("update") and title.endswith("1 thread"):
            for name, row in rows.items():
                series.setdefault(name, []).append((int(title.split()[1]), row["median_us"] / 1000))
    _lines(series, figures, output / "update-by-size", "claims present", "ms for one durable update")


def by_threads(figures: Figures, output: Path) -> None:
    """Durable updates a second against the number of threads."""
    series: dict[str, list[tuple[int, float]]] = {}
    for title, rows in figures["comparisons"].items():
        if title.startswith("update, 256"):
            for name, row in rows.items():
                series.setdefault(name, []).append((int(title.split()[3]), row["per_second"]))
    _lines(series, figures, output / "update-by-threads", "threads", "updates per second")


def restart(figures: Figures, output: Path) -> None:
    """Time to open and read everything, for the largest number of claims."""
    title = [title for title in figures["comparisons"] if title.startswith("restart")][-1]
    rows = sorted(figures["comparisons"][title].items(), key=lambda item: -item[1]["median_us"])
    figure, axes = plt.subplots(figsize=(7, 3.6))
    axes.barh(
        [_label(name, figures) for name, _ in rows],
        [row["median_us"] / 1000 for _, row in rows],
        color=[COLOURS.get(name, OTHERS) for name, _ in rows],
    )
    axes.set_xlabel(f"ms: {title}")
    _finish(figure, axes, output / "restart")


def _lines(series: dict[str, list[tuple[int, float]]], figures: Figures, path: Path, x: str, y: str) -> None:
    figure, axes = plt.subplots(figsize=(8, 4))
    for name, points in series.items():
        xs, ys = zip(*sorted(points), strict=True)
        axes.plot(
            xs,
            ys,
            marker="o",
            markersize=3,
            linewidth=2.5 if name in COLOURS else 1.2,
            linestyle="-" if figures["durable"][name] else ":",
            color=COLOURS.get(name),
            label=_label(name, figures),
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sorted({point for points in series.values() for point, _ in points}))
    axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,g}")
        axis.set_minor_formatter("{x:,g}")
    axes.tick_params(axis="y", which="minor", labelsize=7)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    _finish(figure, axes, path)


def _label(name: str, figures: Figures) -> str:
    return name if figures["durable"][name] else f"{name} (not durable)"


def _finish(figure: Any, axes: Any, path: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path.with_suffix(".png"), dpi=110)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)
