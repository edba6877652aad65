"""The state that most tests here store: small, typed, and easy to change."""

from __future__ import annotations

from dataclasses import dataclass, field

from checkpointmanager import CheckpointManager, Schema

BOOT = "boot-a"


@dataclass
class Lease:
    holder: str
    seconds: int = 60
    tags: list[str] = field(default_factory=list)


LEASES = Schema("Lease", version=1, type=Lease)
OLD = Lease("old")
NEW = Lease("new", 120)

LeaseManager = CheckpointManager[Lease]
