"""Where it ran, so that nobody compares figures of different machines unknowingly."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import version
from pathlib import Path

from checkpointmanager.filestore.system import file_system_of

PACKAGES = ("checkpointmanager", "orjson", "xxhash", "filelock", "lmdb", "rocksdict", "diskcache")


def describe(directory: Path) -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        "file_system": file_system_of(os.stat(directory).st_dev) or "unknown",
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in PACKAGES},
    }
