"""Directories to check, made by the library itself; checkpointmanager.testing damages their files."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointManager, Schema

CLAIMS: Schema[Any] = Schema("ClaimInfo", version=3)


def claim(number: int) -> dict[str, Any]:
    return {"namespace": "default", "name": f"claim-{number}", "pods": [f"pod-{number}"], "token": f"secret-{number}"}


def make(directory: Path, count: int = 4) -> Path:
    """This many claims, the first of them written twice, so that it has a previous generation."""
    shutil.copytree(_template(count), directory, dirs_exist_ok=True)
    return directory


@cache
def _template(count: int) -> Path:
    """Made once by the library, because syncs are slow; every test gets a copy."""
    directory = Path(tempfile.mkdtemp(prefix="checkpoint-verify-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with CheckpointManager(directory, CLAIMS) as manager:
        with manager.batch() as batch:
            for number in range(count):
                batch.create_checkpoint(f"claim-{number}", claim(number))
        manager.create_checkpoint("claim-0", claim(0) | {"pods": ["pod-0", "pod-9"]})
    return directory


def snapshot(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file below, with its bytes, inode and time: what must not change when the tool only reads."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
