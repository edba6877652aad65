"""Where it ran, so that nobody compares figures of different machines unknowingly."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import version
from pathlib import Path

from checkpointmanager._filestore.system import file_system_of

PACKAGES = ("checkpointmanager", "orjson", "xxhash", "filelock", "lmdb", "rocksdict", "diskcache")


def describe(directory: Path) -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        "file_system": file_system_of(os.stat(directory).st_dev) or "unknown",
        "disk": _disk(os.stat(directory).st_dev),
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in PACKAGES},
    }


def _disk(device: int) -> str:
    """The device's name, and what the kernel says about its cache: syncs are quick where nothing is forced out."""
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not folder.exists():
        return "unknown"
    queue = next(place for place in (folder / "queue", folder / ".." / "queue") if place.exists())
    kind = "rotating" if (queue / "rotational").read_text(encoding="ascii").strip() == "1" else "solid state"
    return f"{folder.resolve().name}, {kind}, {(queue / 'write_cache').read_text(encoding='ascii').strip()} cache"
