"""What the tests of the asyncio manager store."""

from __future__ import annotations

from dataclasses import dataclass

from checkpointmanager import Schema


@dataclass
class Lease:
    holder: str
    count: int = 0


LEASES = Schema("Lease", version=1, type=Lease)
