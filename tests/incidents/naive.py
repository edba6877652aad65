"""How it was done where it went wrong, in a few lines each. The tests show that these do fail."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class Corrupted(Exception):
    """The error with which the agents ended."""


def rename_without_sync(path: Path, blob: bytes) -> None:
    """Atomic for other processes, but not for the power supply."""
    temp = path.with_suffix(".tmp")
    temp.write_bytes(blob)
    os.replace(temp, path)


def seal_struct(state: Any) -> bytes:
    """The checksum covers the object in memory, not the bytes: kubelet hashes Go's %#v of the struct."""
    return json.dumps({"data": asdict(state), "checksum": zlib.crc32(repr(state).encode())}).encode()


def open_struct(blob: bytes, cls: type[T]) -> T:
    """Decode, then hash what came out: a program with another struct hashes something else."""
    document = json.loads(blob)
    known = {name: value for name, value in document["data"].items() if name in cls.__dataclass_fields__}  # type: ignore[attr-defined]
    state = cls(**known)
    if zlib.crc32(repr(state).encode()) != document["checksum"]:
        raise Corrupted("checkpoint is corrupted")
    return state
