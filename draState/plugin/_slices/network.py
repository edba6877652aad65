"""Publishes pools of devices that are attached to the network: they belong to no node, and every agent whose device
file has such a pool publishes it.

There is no leader. Names and content follow from the device file alone, so agents with the same file want the same
slices: the first one writes them, the others find them correct. Files differ while a change spreads over the nodes.
So an agent writes its version once, when it starts or when its own file changes, and after that only what is missing
or incomplete: two agents never overwrite each other for long, and the last change of a file stays. An agent withdraws
a pool only when the pool leaves the agent's own file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from .._inventory import Inventory, NetworkPool
from .objects import network_name, network_slices_of
from .writer import Item, SliceWriter, named, pool_of

logger = logging.getLogger("draState.plugin")


class NetworkSlices:
    """The network pools of one driver."""

    def __init__(self, writer: SliceWriter) -> None:
        self._writer = writer
        self._said: dict[str, NetworkPool] = {}  # pools of our file that we sent to the server, or that it already had
        self._differing: set[str] = set()  # pools that another agent wrote last, with other content

    def publish(self, inventory: Inventory) -> int:
        """Publish the pools, and return how many slices changed."""
        wanted = {pool.name: pool for pool in inventory.network}
        if not wanted and not self._said:
            return 0
        found = self._writer.found(inventory.driver, "")
        changed = 0
        for name in self._said.keys() - wanted.keys():
            gone = _of_pool(found, inventory.driver, name)
            self._writer.delete(gone)
            del self._said[name]
            changed += len(gone)
        for name, pool in wanted.items():
            changed += self._publish(inventory.driver, pool, _of_pool(found, inventory.driver, name))
            self._said[name] = pool
        return changed

    def _publish(self, driver: str, pool: NetworkPool, found: Mapping[str, Item]) -> int:
        generation = max((int(pool_of(item)["generation"]) for item in found.values()), default=1)
        wanted = named(network_slices_of(driver, pool, generation))
        if self._writer.agree(found, wanted):
            self._differing.discard(pool.name)
            return 0
        if self._said.get(pool.name) == pool and _is_complete(found):
            if pool.name not in self._differing:
                logger.warning(
                    "network pool %s: another agent published a different version; leaving it as it is", pool.name
                )
            self._differing.add(pool.name)
            return 0
        if found:
            wanted = named(network_slices_of(driver, pool, generation + 1))
        self._writer.write(wanted.values(), found)
        surplus = found.keys() - wanted.keys()
        self._writer.delete(surplus)
        return len(wanted) + len(surplus)


def _of_pool(found: Mapping[str, Item], driver: str, pool: str) -> dict[str, Item]:
    """The slices that agents wrote; a controller may have others of the same driver."""
    beginning = f"{network_name(driver, pool)}-"
    return {name: item for name, item in found.items() if name.startswith(beginning)}


def _is_complete(found: Mapping[str, Item]) -> bool:
    pools = [pool_of(item) for item in found.values()]
    same = {(pool["generation"], pool["resourceSliceCount"]) for pool in pools}
    return len(same) == 1 and pools[0]["resourceSliceCount"] == len(pools)
