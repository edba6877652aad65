"""Directories to check, made by the library itself; checkpointmanager.testing damages their files."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointManager, Schema
from checkpointmanager.format import CHECKSUM_BYTES, checksum_of

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


def reseal(path: Path, old: bytes, new: bytes) -> None:
    """Change a checkpoint as only a program can: its checksum is right again."""
    body = path.read_bytes()[CHECKSUM_BYTES:].replace(old, new)
    path.write_bytes(checksum_of(body) + body)


def snapshot(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file below, with its bytes, inode and time: what must not change when the tool only reads."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def crashed(directory: Path, count: int = 4) -> Path:
    """The same claims as an agent leaves them that dies with a journal, and none of its last changes in their files.

    It had updated claim-1, removed claim-2 and created "ns/new", whose name is ns%2Fnew.
    """
    alive = make(directory.with_name(f"{directory.name}-alive"), count)
    files = {path.name: path.read_bytes() for path in alive.iterdir() if path.is_file()}
    with CheckpointManager(alive, CLAIMS) as manager:
        manager.create_checkpoint("claim-1", claim(1) | {"pods": ["newest"]})
        manager.remove_checkpoint("claim-2")
        manager.create_checkpoint("ns/new", claim(9))
        journal = (alive / ".journal").read_bytes()
    shutil.rmtree(alive)
    directory.mkdir(mode=0o700)
    for name, blob in (files | {".journal": journal}).items():
        (directory / name).write_bytes(blob)
    return directory
