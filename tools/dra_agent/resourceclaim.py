"""What the scheduler decided about a claim, as it stands in the ResourceClaim object of the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from draState import ClaimInvalid, ClaimRef, Device

from .settings import Inventory


@dataclass(frozen=True, slots=True)
class Allotment:
    """The devices of this driver that a claim got, and the pods that may use them (UID to name)."""

    devices: tuple[Device, ...]
    pods: Mapping[str, str]


def allotment(ref: ClaimRef, claim: Mapping[str, Any], inventory: Inventory) -> Allotment:
    """What `claim` gives to the claim that kubelet asks for; ClaimInvalid says why it gives nothing."""
    where = f"claim {ref.namespace}/{ref.name} (UID {ref.uid})"
    try:
        found = claim["metadata"]["uid"]
        if found != ref.uid:
            raise ClaimInvalid(f"{where}: the API server has UID {found} under this name; the old claim is gone")
        status = claim.get("status") or {}
        if not status.get("allocation"):
            raise ClaimInvalid(f"{where} is not allocated")
        results = (status["allocation"].get("devices") or {}).get("results") or []
        ours = [result for result in results if result["driver"] == inventory.driver]
        devices = _merged([_device(where, result, inventory) for result in ours])
        consumers = status.get("reservedFor") or []
        pods = {user["uid"]: user["name"] for user in consumers if user.get("resource") == "pods"}
    except (KeyError, TypeError, AttributeError) as error:
        raise ClaimInvalid(f"{where}: the API server's answer is not a ResourceClaim ({error!r})") from error
    if not devices:
        raise ClaimInvalid(f"{where} has no device of driver {inventory.driver}")
    return Allotment(tuple(devices), pods)


def _device(where: str, result: Mapping[str, Any], inventory: Inventory) -> Device:
    pool, name = result["pool"], result["device"]
    if pool != inventory.pool or name not in inventory.devices:
        raise ClaimInvalid(f"{where} was given device {pool}/{name}, which this node does not have")
    if result.get("adminAccess"):
        raise ClaimInvalid(f"{where} wants admin access to {pool}/{name}, which this driver does not offer")
    return Device(pool, name, result.get("shareID") or None, (result["request"],))


def _merged(devices: list[Device]) -> list[Device]:
    """A device that serves several requests of a claim is one device with several request names."""
    merged: dict[tuple[str, str, str | None], Device] = {}
    for device in devices:
        known = merged.get(device.identity, replace(device, request_names=()))
        merged[device.identity] = replace(known, request_names=(*known.request_names, *device.request_names))
    return list(merged.values())
