"""Makes the ResourceSlices at the API server match the device file, so that the scheduler knows the devices: the pool
of this node, and the pools that it shares with others.
"""

from __future__ import annotations

from typing import Any

from .._apiserver.client import ApiServer
from .._inventory import Inventory
from .network import NetworkSlices
from .objects import slices_of
from .writer import SliceWriter, named, pool_of


class ResourceSlices:
    """The slices of one node and driver."""

    def __init__(self, server: ApiServer, node: str) -> None:
        self._server = server
        self._node = node
        self._writer = SliceWriter(server)
        self._network = NetworkSlices(self._writer)

    def forget(self) -> None:
        """See SliceWriter.forget."""
        self._writer.forget()

    def publish(self, inventory: Inventory) -> int:
        """Publish the slices, and return how many changed. This node's own come first: others can publish the rest."""
        return self._publish_own(inventory) + self._network.publish(inventory)

    def _publish_own(self, inventory: Inventory) -> int:
        found = self._writer.found(inventory.driver, self._node)
        owner = self._owner()
        pool = [item for item in found.values() if pool_of(item)["name"] == inventory.pool]
        generation = max((int(pool_of(item)["generation"]) for item in pool), default=1)
        wanted = named(slices_of(inventory, self._node, owner, generation))
        if self._writer.agree(found, wanted):
            return 0
        if pool:  # a changed pool gets a new generation, so that no reader mixes old and new slices
            wanted = named(slices_of(inventory, self._node, owner, generation + 1))
        # A pool cannot be renamed. The old one is removed first: no device may be offered in two pools.
        gone = [name for name, item in found.items() if pool_of(item)["name"] != inventory.pool]
        self._writer.delete(gone)
        kept = {name: item for name, item in found.items() if name not in gone}
        self._writer.write(wanted.values(), kept)
        surplus = kept.keys() - wanted.keys()
        self._writer.delete(surplus)
        return len(wanted) + len(surplus) + len(gone)

    def _owner(self) -> dict[str, Any]:
        """The slices are deleted with the node; without an owner they would stay for ever."""
        node = self._server.node(self._node)
        uid = node["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid, "controller": True}
