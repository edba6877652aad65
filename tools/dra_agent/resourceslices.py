"""The ResourceSlices of this node, which is how the scheduler learns of its devices: how they should be, and making
them so at the API server.

What the server has stored is never quite what it was sent: quantities come back in another form (1024Mi as 1Gi),
fields of features that are off and empty lists are dropped. So the slices that are found are compared with what the
server makes of ours, which it says in the answer to a write, or to a dry run of one. Comparing with ours alone would
give the pool a new generation at every look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from .apiserver import ApiError, ApiServer
from .grammar import LIST_KINDS
from .inventory import Inventory, OfferedDevice

DEVICES_PER_SLICE = 128  # the API server's limit
WITH_LISTS_PER_SLICE = 64  # the same if a device has an attribute that is a list
NODE_IN_NAME = 100  # characters of the node's name in that of a slice, which has at most 253

Item = Mapping[str, Any]


class NotServed(Exception):
    """This API server does not have the API that the agent needs. Says what to do."""


class ResourceSlices:
    """The slices of one node. It remembers what the server made of ours; a new object asks once more."""

    def __init__(self, server: ApiServer, node: str) -> None:
        self._server = server
        self._node = node
        self._stored: dict[str, tuple[object, object]] = {}  # by name: what we want, and what the server makes of it

    def publish(self, inventory: Inventory) -> int:
        """Make the server's slices of this node and driver those of the inventory; returns how many changed."""
        found = self._found(inventory.driver)
        owner = self._owner()
        pool = [item for item in found.values() if _pool(item)["name"] == inventory.pool]
        generation = max((int(_pool(item)["generation"]) for item in pool), default=1)
        wanted = _named(slices_of(inventory, self._node, owner, generation))
        if found.keys() == wanted.keys() and all(self._agree(found[name], wanted[name]) for name in wanted):
            return 0
        if pool:  # a pool that changes gets a new generation, so that nobody mixes old slices with new ones
            wanted = _named(slices_of(inventory, self._node, owner, generation + 1))
        # A pool's name cannot be changed. The old one goes first: no device may be on offer in two pools.
        gone = [name for name, item in found.items() if _pool(item)["name"] != inventory.pool]
        for name in gone:
            self._delete(name)
            del found[name]
        for name, item in wanted.items():
            answer = self._write(item, found.get(name))
            self._stored[name] = (_content(item), _content(answer))
        surplus = found.keys() - wanted.keys()
        for name in surplus:
            self._delete(name)
        return len(wanted) + len(surplus) + len(gone)

    def _found(self, driver: str) -> dict[str, Item]:
        selector = quote(f"spec.driver={driver},spec.nodeName={self._node}", "")
        try:
            answer = self._server.request("GET", f"/resourceslices?fieldSelector={selector}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND and "v1" not in (served := self._server.served_versions()):
                has = f"only {', '.join(served)}" if served else "nothing of it"
                raise NotServed(
                    f"the API server does not serve resource.k8s.io/v1 (it has {has}): the agent needs Kubernetes 1.34 "
                    "or newer with this API on; it goes on by itself when it is there"
                ) from error
            raise
        return _named(answer.get("items") or [])

    def _owner(self) -> dict[str, Any]:
        """The slices go when the node goes; without an owner they would stay for ever."""
        node = self._server.node(self._node)
        uid = node["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid, "controller": True}

    def _agree(self, found: Item, wanted: Item) -> bool:
        name, content = wanted["metadata"]["name"], _content(wanted)
        if _content(found) == content:
            return True
        if _pool(found)["name"] != _pool(wanted)["name"]:
            return False
        if self._stored.get(name, (None, None))[0] != content:
            self._stored[name] = (content, _content(self._write(wanted, found, "?dryRun=All")))
        return self._stored[name][1] == _content(found)

    def _write(self, item: Item, found: Item | None, option: str = "") -> Item:
        if found is None:
            return self._server.request("POST", "/resourceslices", item)
        version = found["metadata"].get("resourceVersion", "")
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": version}}
        return self._server.request("PUT", f"{_path(item['metadata']['name'])}{option}", item)

    def _delete(self, name: str) -> None:
        try:
            self._server.request("DELETE", _path(name))
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise


def slices_of(inventory: Inventory, node: str, owner: Item, generation: int = 1) -> list[dict[str, Any]]:
    """The objects that describe the pool; their names are always the same for a node, driver and pool."""
    devices = [_device(device) for device in inventory.devices.values()]
    limit = WITH_LISTS_PER_SLICE if any(map(_has_lists, inventory.devices.values())) else DEVICES_PER_SLICE
    parts = [devices[at : at + limit] for at in range(0, len(devices), limit)] or [[]]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": _name(inventory, node, number), "ownerReferences": [dict(owner)]},
            "spec": {
                "driver": inventory.driver,
                "nodeName": node,
                "pool": {"name": inventory.pool, "generation": generation, "resourceSliceCount": len(parts)},
                "devices": part,
            },
        }
        for number, part in enumerate(parts)
    ]


def _device(device: OfferedDevice) -> dict[str, Any]:
    told: dict[str, Any] = {"name": device.name}
    if device.attributes:
        told["attributes"] = dict(device.attributes)
    if device.capacity:
        told["capacity"] = dict(device.capacity)
    if device.shared:
        told["allowMultipleAllocations"] = True
    return told


def _has_lists(device: OfferedDevice) -> bool:
    return any(kind in LIST_KINDS for attribute in device.attributes.values() for kind in attribute)


def _name(inventory: Inventory, node: str, number: int) -> str:
    """A DNS subdomain, also where the node's name is cut. What is cut off, and the pool, are in the digest."""
    digest = hashlib.sha256(f"{node}/{inventory.driver}/{inventory.pool}".encode()).hexdigest()[:8]
    return f"{node[:NODE_IN_NAME].rstrip('.-')}-{inventory.driver}-{digest}-{number}"


def _named(items: Iterable[Item]) -> dict[str, Item]:
    return {item["metadata"]["name"]: item for item in items}


def _pool(item: Item) -> Item:
    pool: Item = item["spec"]["pool"]
    return pool


def _content(item: Item) -> object:
    """What is ours in a slice; the rest of its metadata is the server's."""
    return item["metadata"].get("ownerReferences"), item["spec"]


def _path(name: str) -> str:
    return f"/resourceslices/{quote(name, '')}"
