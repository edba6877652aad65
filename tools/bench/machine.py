"""Describes where the benchmark ran, so that nobody compares figures of different machines by mistake."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import version

from .volume import Volume


def describe(where: Volume) -> dict[str, str]:
    return {
        "place": where.note,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in ("checkpointmanager", "orjson", "xxhash", "filelock")},
    }
