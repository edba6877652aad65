"""Makes ResourceSlice objects from devices: as many as a pool needs, and the content of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from ._grammar import attribute_form, capacity_form, is_list
from ._inventory import Counters, Device, Inventory, NetworkPool

T = TypeVar("T")
DEVICES_PER_SLICE = 128  # the API server's limit
SMALLER_SLICE = 64  # the limit if a device has a taint, consumes counters, or has an attribute that is a list
COUNTER_SETS_PER_SLICE = 8
NODE_IN_NAME = 100  # characters of the node's name in the name of a slice, which has at most 253


def slices_of(inventory: Inventory, node: str, owner: Mapping[str, Any], generation: int = 1) -> list[dict[str, Any]]:
    """The slices of the node's own pool; their names are always the same for a node, driver and pool.

    The names are DNS subdomains even if the node's name is cut. The digest covers the full name and the pool.
    """
    digest = _digest(node, inventory.driver, inventory.pool)
    return _slices(
        f"{node[:NODE_IN_NAME].rstrip('.-')}-{inventory.driver}-{digest}",
        {"ownerReferences": [dict(owner)]},
        {"driver": inventory.driver, "nodeName": node},
        {"name": inventory.pool, "generation": generation},
        inventory.devices,
        counters=inventory.shared_counters,
    )


def network_slices_of(driver: str, pool: NetworkPool, generation: int = 1) -> list[dict[str, Any]]:
    """The slices of a pool that belongs to no node. They have no owner: they must outlive the node that wrote them."""
    where: dict[str, Any] = {"allNodes": True}
    if pool.node_selector is not None:
        labels = [
            {"key": name, "operator": "In", "values": list(values)} for name, values in pool.node_selector.items()
        ]
        where = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": labels}]}}
    return _slices(
        network_name(driver, pool.name),
        {},
        {"driver": driver, **where},
        {"name": pool.name, "generation": generation},
        pool.devices,
    )


def network_name(driver: str, pool: str) -> str:
    """How the names of a network pool's slices begin, the same on every node."""
    return f"{driver}-network-{_digest(driver, pool)}"


def _slices(
    name: str,
    metadata: Mapping[str, Any],
    spec: Mapping[str, Any],
    pool: Mapping[str, Any],
    offered: Iterable[Device],
    *,
    counters: Counters = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """A slice has devices or shared counters, never both."""
    devices = list(offered)
    limit = SMALLER_SLICE if any(map(_needs_smaller_slices, devices)) else DEVICES_PER_SLICE
    sets = [{"name": name, "counters": _counters(amounts)} for name, amounts in counters.items()]
    parts = [{"devices": list(map(_device, part))} for part in _in_parts(devices, limit) or [[]]]
    parts += [{"sharedCounters": part} for part in _in_parts(sets, COUNTER_SETS_PER_SLICE)]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{number}", **metadata},
            "spec": {**spec, "pool": {**pool, "resourceSliceCount": len(parts)}, **part},
        }
        for number, part in enumerate(parts)
    ]


def _device(device: Device) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": device.name}
    if device.attributes:
        entry["attributes"] = {name: attribute_form(value) for name, value in device.attributes.items()}
    if device.capacity:
        entry["capacity"] = {name: capacity_form(value) for name, value in device.capacity.items()}
    if device.shared:
        entry["allowMultipleAllocations"] = True
    if device.taints:
        entry["taints"] = [dict(taint) for taint in device.taints]
    if device.consumes_counters:
        taken = device.consumes_counters.items()
        entry["consumesCounters"] = [{"counterSet": name, "counters": _counters(amounts)} for name, amounts in taken]
    return entry


def _counters(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"value": str(amount)} for name, amount in amounts.items()}


def _in_parts(items: list[T], limit: int) -> list[list[T]]:
    return [items[at : at + limit] for at in range(0, len(items), limit)]


def _needs_smaller_slices(device: Device) -> bool:
    lists = any(is_list(attribute_form(value)) for value in device.attributes.values())
    return lists or bool(device.taints or device.consumes_counters)


def _digest(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:8]
