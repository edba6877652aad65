"""The four shapes that a claim's file has had, and the migration from each to the next.

    1  the 2023 kubelet: one driver, and a list of CDI devices
    2  CDI devices by driver
    3  drivers with devices, each with pool, share and requests; and skipped operations
    4  the phase of the claim, the configs, the driver's own data; admin access and capacity of devices

An agent of version 3 must not touch a claim of version 4: it would answer an unprepared claim as prepared.

Every shape has a golden file in the tests. These files must never change.
"""

from __future__ import annotations

from typing import Any

from checkpointmanager import Schema

from ._claimstate import ClaimInfoState


def to_2(claim: dict[str, Any]) -> dict[str, Any]:
    """The single driver becomes a key."""
    devices = claim.pop("CdiDevices", None) or []
    claim["CDIDevices"] = {claim["DriverName"]: devices}
    return claim


def to_3(claim: dict[str, Any]) -> dict[str, Any]:
    """CDI ids without pool or request become one device that belongs to every request.

    A driver without CDI devices is kept: it has to be called when the claim is unprepared.
    """
    by_driver: dict[str, list[str]] = dict(claim.get("CDIDevices") or {})
    if driver := claim.get("DriverName"):
        by_driver.setdefault(driver, [])
    return {
        "claim_uid": claim["ClaimUID"],
        "claim_name": claim["ClaimName"],
        "namespace": claim["Namespace"],
        "pod_uids": sorted(claim.get("PodUIDs") or {}),
        "driver_states": {driver: {"devices": _one_device(ids)} for driver, ids in by_driver.items()},
    }


def _one_device(cdi_device_ids: list[str] | None) -> list[dict[str, Any]]:
    return [{"pool_name": "", "device_name": "", "cdi_device_ids": cdi_device_ids}] if cdi_device_ids else []


def to_4(claim: dict[str, Any]) -> dict[str, Any]:
    """Without a phase nobody knows whether set-up finished, so the claim is set up again before it is answered."""
    return claim


CLAIMS: Schema[ClaimInfoState] = Schema(
    "ClaimInfo", version=4, readable_by=4, type=ClaimInfoState, migrations={1: to_2, 2: to_3, 3: to_4}
)
"""The schema of the files of a ClaimInfoCache."""
