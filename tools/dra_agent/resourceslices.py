"""Publishes the devices of this node as ResourceSlices, which is how the scheduler learns of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from .apiserver import ApiError, ApiServer
from .settings import Inventory, OfferedDevice

DEVICES_PER_SLICE = 128  # the API server's limit


def slices_of(inventory: Inventory, node: str, generation: int = 1) -> list[dict[str, Any]]:
    """The objects that describe the pool; their names are always the same for a node and driver."""
    devices = [_device(device) for device in inventory.devices.values()]
    parts = [devices[at : at + DEVICES_PER_SLICE] for at in range(0, len(devices), DEVICES_PER_SLICE)] or [[]]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": _name(inventory.driver, node, number)},
            "spec": {
                "driver": inventory.driver,
                "nodeName": node,
                "pool": {"name": inventory.pool, "generation": generation, "resourceSliceCount": len(parts)},
                "devices": part,
            },
        }
        for number, part in enumerate(parts)
    ]


def publish(server: ApiServer, inventory: Inventory, node: str) -> int:
    """Make the API server's slices of this node and driver those of the inventory; returns how many changed."""
    selector = quote(f"spec.driver={inventory.driver},spec.nodeName={node}", "")
    listed = server.request("GET", f"/resourceslices?fieldSelector={selector}").get("items") or []
    found = {item["metadata"]["name"]: item for item in listed}
    generation = max((_generation(item) for item in found.values()), default=1)
    wanted = {item["metadata"]["name"]: item for item in slices_of(inventory, node, generation)}
    if {name: item["spec"] for name, item in found.items()} == {name: item["spec"] for name, item in wanted.items()}:
        return 0
    if found:  # a pool that changes gets a new generation, so that nobody mixes old slices with new ones
        wanted = {item["metadata"]["name"]: item for item in slices_of(inventory, node, generation + 1)}
    for name, item in wanted.items():
        if name in found:
            item["metadata"]["resourceVersion"] = found[name]["metadata"].get("resourceVersion", "")
            server.request("PUT", f"/resourceslices/{quote(name, '')}", item)
        else:
            server.request("POST", "/resourceslices", item)
    surplus = found.keys() - wanted.keys()
    for name in surplus:
        try:
            server.request("DELETE", f"/resourceslices/{quote(name, '')}")
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
    return len(wanted) + len(surplus)


def _generation(item: Mapping[str, Any]) -> int:
    return int(item["spec"]["pool"]["generation"])


def _device(device: OfferedDevice) -> dict[str, Any]:
    told: dict[str, Any] = {"name": device.name}
    if device.attributes:
        told["attributes"] = dict(device.attributes)
    if device.capacity:
        told["capacity"] = dict(device.capacity)
    if device.shared:
        told["allowMultipleAllocations"] = True
    return told


def _name(driver: str, node: str, number: int) -> str:
    """A DNS name, also where node and driver together are too long for one."""
    digest = hashlib.sha256(f"{node}/{driver}".encode()).hexdigest()[:8]
    return f"{node[:100]}-{driver[:63]}-{digest}-{number}"
