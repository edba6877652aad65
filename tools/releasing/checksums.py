"""SHA256SUMS, as `sha256sum --check` reads it."""

from __future__ import annotations

import hashlib
from pathlib import Path

NAME = "SHA256SUMS"


def write(folder: Path) -> None:
    """One line per file of the folder."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.name != NAME
    ]
    (folder / NAME).write_text("".join(lines), encoding="utf-8")
