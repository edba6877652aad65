"""What release 2 keeps of a lease: all that release 1 did, and more, which release 1 keeps for it meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from checkpointmanager import Schema, UnknownFields, unknown_fields


@dataclass(frozen=True)
class Device:
    name: str
    uses: int = 0
    numa: int = 0
    unknown: UnknownFields = unknown_fields()

    def used(self) -> Device:
        return replace(self, uses=self.uses + 1)


@dataclass
class Place:
    region: str
    racks: dict[str, int] = field(default_factory=dict)


@dataclass
class Lease:
    holder: str
    seconds: int = 60
    devices: list[Device] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    place: Place | None = None


def to_2(lease: dict[str, Any]) -> dict[str, Any]:
    """Leases of release 1 were all held where they were made."""
    return {**lease, "tags": [], "place": {"region": "here", "racks": {}}}


LEASES = Schema("Lease", version=2, type=Lease, migrations={1: to_2}, readable_by=1)
