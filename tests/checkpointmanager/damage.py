"""Ways to hurt a file, and to look at what is left of a directory."""

from __future__ import annotations

import os
from pathlib import Path


def ruin(path: Path) -> None:
    """More than can be repaired, but the header still says which generation it was."""
    blob = bytearray(path.read_bytes())
    blob[-30:-20] = b"##########"
    path.write_bytes(blob)


def names(directory: Path, prefix: str = "") -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith(prefix))


def quarantined(directory: Path) -> list[bytes]:
    """What is kept, oldest first."""
    folder = directory / ".quarantine"
    return [(folder / name).read_bytes() for name in names(folder)] if folder.is_dir() else []
