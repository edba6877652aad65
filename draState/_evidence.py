"""What the bytes of a damaged claim still name. No checksum vouches for it: it holds devices back, and nothing else.

A changed digit would make it another device, so no hook that changes hardware ever gets it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from checkpointmanager import CorruptCheckpoint

from ._claimstate import ClaimPhase, Device, DriverState


def evidence_in(problem: Exception | None, uid: str) -> Mapping[str, DriverState]:
    """What each driver did, as far as it is legible; empty if nothing is, or if it is about another claim."""
    data = problem.unverified_data if isinstance(problem, CorruptCheckpoint) else None
    if not isinstance(data, dict) or data.get("claim_uid") != uid:
        return {}
    parts = data.get("driver_states")
    parts = parts if isinstance(parts, dict) else {}
    return {driver: _shown(part) for driver, part in parts.items() if isinstance(part, dict)}


def _shown(part: dict[str, Any]) -> DriverState:
    phase = part.get("phase") if "driver_data" in part else None  # a phase says that the driver's data is legible
    return DriverState(
        tuple(_devices(part)),
        phase=ClaimPhase(phase) if phase in list(ClaimPhase) else None,
        driver_data=part.get("driver_data"),
    )


def _devices(part: dict[str, Any]) -> Iterator[Device]:
    listed = part.get("devices")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(name := each.get("device_name"), str):
            pool, share = each.get("pool_name"), each.get("share_id")
            yield Device(
                pool if isinstance(pool, str) else "",
                name,
                share if isinstance(share, str) else None,
                admin_access=each.get("admin_access") is True,
            )
