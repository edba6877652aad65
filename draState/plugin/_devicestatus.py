"""What users see of a prepared device in the `status.devices` of its claim, by server-side apply."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_interface
from typing import Any
from urllib.parse import quote, urlencode

from .. import ClaimRef
from .. import Device as ClaimDevice
from ._apiserver import CLAIMS, RESOURCE_API
from ._reports import Letter, Outbox

APPLY = "application/apply-patch+yaml"  # of which JSON is a part
MAX_CONDITIONS = 8
MAX_DATA = 10 << 10  # bytes
MAX_IPS = 16
Entries = list[dict[str, Any]]
MAX_INTERFACE, MAX_HARDWARE_ADDRESS, MAX_MANAGER = 256, 128, 128  # characters


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a device."""

    type: str  # such as Ready
    status: bool = True  # whether the condition holds
    reason: str = "SetUp"  # one word in CamelCase
    message: str = ""  # for people


@dataclass(frozen=True, slots=True)
class NetworkData:
    """Where a network device is found."""

    interface_name: str = ""  # in the pod
    ips: tuple[str, ...] = ()  # with their masks, such as 10.0.0.7/24
    hardware_address: str = ""  # its MAC


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """The status of one device, for everybody who may see the claim."""

    conditions: tuple[Condition, ...] = ()  # each of another type
    data: Mapping[str, Any] | None = None  # any JSON object
    network: NetworkData = field(default_factory=NetworkData)  # for a network device

    def __post_init__(self) -> None:
        """Raises ValueError if the API server would refuse it. The error quotes nothing."""
        if len(self.conditions) > MAX_CONDITIONS or len({each.type for each in self.conditions}) < len(self.conditions):
            raise ValueError(f"conditions: at most {MAX_CONDITIONS}, each of another type")
        if len(json.dumps(self.data)) > MAX_DATA:
            raise ValueError(f"data: at most {MAX_DATA} bytes")
        given = self.network
        if len(given.ips) > MAX_IPS or len(given.interface_name) > MAX_INTERFACE:
            raise ValueError(f"network: at most {MAX_IPS} addresses, and {MAX_INTERFACE} characters for the interface")
        if len(given.hardware_address) > MAX_HARDWARE_ADDRESS:
            raise ValueError(f"network: at most {MAX_HARDWARE_ADDRESS} characters for the hardware address")
        if not all(map(_is_address, given.ips)):
            raise ValueError("network: an address is in its usual form, with its mask: 10.0.0.7/24, fd00::7/64")


def _is_address(text: str) -> bool:
    try:
        return str(ip_interface(text)) == text
    except ValueError:
        return False


class DeviceStatuses:
    """The entries of one driver on one node; the API server leaves those of others alone. Safe for many threads."""

    def __init__(self, outbox: Outbox, driver: str, node: str) -> None:
        self._outbox = outbox
        self._driver = driver
        self._reported: dict[str, Entries] = {}  # by claim UID, in this process
        self._query = urlencode({"fieldManager": f"{driver}/{node}"[:MAX_MANAGER], "force": "true"})

    def entries(self, statuses: Iterable[tuple[ClaimDevice, DeviceStatus]]) -> Entries:
        """What the API server is to show, with the time of now."""
        return [self._entry(device, status) for device, status in statuses]

    def withdraw(self, claim: ClaimRef, entries: Entries) -> None:
        """Show these no longer."""
        self._reported.setdefault(claim.uid, entries)
        self.report(claim, [])

    def report(self, claim: ClaimRef, entries: Entries) -> None:
        """Show these and no others, unless this process has done so. Call it again after a restart: the last process
        may have ended before it was sent."""
        before = self._reported.pop(claim.uid, [])
        if entries:
            self._reported[claim.uid] = entries
        if entries == before:
            return
        path = f"{RESOURCE_API}/namespaces/{quote(claim.namespace, '')}/{CLAIMS}/{quote(claim.name, '')}/status"
        patch = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
            "status": {"devices": entries},
        }
        self._outbox.put(f"status/{claim.uid}", Letter("PATCH", f"{path}?{self._query}", patch, APPLY))

    def _entry(self, device: ClaimDevice, status: DeviceStatus) -> dict[str, Any]:
        entry: dict[str, Any] = {"driver": self._driver, "pool": device.pool_name, "device": device.device_name}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [
            {
                "type": each.type,
                "status": str(each.status),
                "reason": each.reason,
                "message": each.message,
                "lastTransitionTime": now,
            }
            for each in status.conditions
        ]
        network = {
            "interfaceName": status.network.interface_name,
            "ips": list(status.network.ips),
            "hardwareAddress": status.network.hardware_address,
        }
        more = {
            "shareID": device.share_id,
            "conditions": conditions,
            "data": None if status.data is None else dict(status.data),
            "networkData": {name: value for name, value in network.items() if value},
        }
        return entry | {name: value for name, value in more.items() if value}
