"""Describes where the benchmark ran, so that nobody compares figures of different machines by mistake."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .databases import PACKAGES
from .volume import Place

PARTS = ("checkpointmanager", "orjson", "xxhash", "filelock", *PACKAGES.values())


def describe(where: Place) -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        "place": where.note,
        "disk": _disk(os.stat(where.disk).st_dev),
        "sqlite": sqlite3.sqlite_version,
        **{name: _version(name) for name in PARTS},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _disk(device: int) -> str:
    """The device's name, and what the kernel says about its cache: syncs are quick if nothing has to be flushed."""
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not folder.exists():
        return "unknown"
    queue = next(place for place in (folder / "queue", folder / ".." / "queue") if place.exists())
    kind = "rotating" if (queue / "rotational").read_text(encoding="ascii").strip() == "1" else "solid state"
    return f"{folder.resolve().name}, {kind}, {(queue / 'write_cache').read_text(encoding='ascii').strip()} cache"
