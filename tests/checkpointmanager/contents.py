"""The contents of a directory: the names in it, and the bytes that it keeps in quarantine."""

from __future__ import annotations

import os
from pathlib import Path


def names(directory: Path, prefix: str = "") -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith(prefix))


def quarantined(directory: Path) -> list[bytes]:
    """The copies, oldest first."""
    folder = directory / ".quarantine"
    return [(folder / name).read_bytes() for name in names(folder)] if folder.is_dir() else []
