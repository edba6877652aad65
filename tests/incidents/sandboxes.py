"""The state that most replays keep: a pod's sandbox, small and typed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointError, CheckpointManager, CorruptCheckpoint, Reason, Schema

BOOT = "boot-1"


@dataclass
class Sandbox:
    pod: str
    network: str = "bridge"
    ports: list[int] = field(default_factory=list)


SANDBOXES = Schema("Sandbox", version=1, type=Sandbox)
Sandboxes = CheckpointManager[Sandbox]


def opened(directory: Path, **options: Any) -> Sandboxes:
    return CheckpointManager(directory, SANDBOXES, **{"boot_id": BOOT} | options)


def reason_for(problem: CheckpointError) -> Reason:
    assert isinstance(problem, CorruptCheckpoint), problem
    return problem.reason


def data_in(path: Path) -> str:
    """The data of a file exactly as written."""
    return path.read_text().partition(',"data":')[2]


def names(directory: Path, prefix: str = "") -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.startswith(prefix))


def quarantined(directory: Path) -> list[bytes]:
    """The quarantined copies of damaged files, oldest first."""
    folder = directory / ".quarantine"
    return [(folder / name).read_bytes() for name in names(folder)] if folder.is_dir() else []


def naive_load(directory: Path) -> dict[str, Any]:
    """How most of these agents started: one loop, which any error ends."""
    return {path.stem: json.loads(path.read_bytes()) for path in directory.glob("[!.]*.json")}
