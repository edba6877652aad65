"""What release 1 keeps of a lease."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from checkpointmanager import Schema, UnknownFields, unknown_fields


@dataclass(frozen=True)
class Device:
    """Replaced when it changes, so it carries by itself what a later release adds to it."""

    name: str
    uses: int = 0
    unknown: UnknownFields = unknown_fields()

    def used(self) -> Device:
        return replace(self, uses=self.uses + 1)


@dataclass
class Lease:
    holder: str
    seconds: int = 60
    devices: list[Device] = field(default_factory=list)


LEASES = Schema("Lease", version=1, type=Lease)
