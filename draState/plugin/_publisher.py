"""Makes the ResourceSlices at the API server match what the driver offers, for as long as the agent serves.

Kubelet removes all slices of its node when it starts, perhaps seconds after it has registered us again. So each
registration is followed by one check at once and several soon after; otherwise one check per minute is enough.

The server never stores quite what it was sent: quantities come back in another form (1024Mi as 1Gi), and it drops
empty lists and the fields of features that are off. So stored slices are compared with the server's form of ours,
which is in its answer to a write or to a dry run. Comparing with ours alone would give the pool a new generation at
every check.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from ._apiserver import ApiError, ApiServer
from ._inventory import Inventory, NetworkPool
from ._slices import network_name, network_slices_of, slices_of

logger = logging.getLogger("draState.plugin")

PERIOD_SECONDS = 60.0  # between two checks; after a failure 1, 2, 4 … up to this
AFTER_REGISTRATION = (1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 10.0)  # seconds between checks: after 1, 3, 6, 10, 15, 20, 30

Item = Mapping[str, Any]


class NotServed(Exception):
    """This API server does not have the API that the agent needs. The text says what to do."""


class Publisher:
    """`run` it as a task. The other methods are for the same event loop."""

    def __init__(self, server: ApiServer, node: str, inventory: Callable[[], Inventory]) -> None:
        self.published = "not yet"  # how the last attempt ended, for people
        self.unserved = ""  # why this API server cannot be used at all; an outage does not count
        self._inventory = inventory
        self._slices = ResourceSlices(server, node)
        self._waits: list[float] = []  # seconds before each of the checks that come soon
        self._wanted = asyncio.Event()

    def registered(self) -> None:
        """Kubelet has registered us: check now and soon again, and forget how the server stored our slices before.

        An updated cluster restarts its kubelets, and may store more fields of a slice than before.
        """
        self._slices.forget()
        self._waits = list(AFTER_REGISTRATION)
        self.look()

    def look(self) -> None:
        """Check now, not in a minute."""
        self._wanted.set()

    async def run(self) -> None:
        """Publish, and check for ever."""
        backoff = 1.0
        while True:
            self._wanted.clear()
            if await self.publish():
                wait, backoff = self._waits.pop(0) if self._waits else PERIOD_SECONDS, 1.0
            else:
                wait, backoff = backoff, min(2 * backoff, PERIOD_SECONDS)
            try:
                await asyncio.wait_for(self._wanted.wait(), wait)
            except TimeoutError:
                continue

    async def publish(self) -> bool:
        """Publish once, now. False if that failed; `published` then says why."""
        inventory = self._inventory()
        try:
            changed = await asyncio.to_thread(self._slices.publish, inventory)
        except NotServed as error:
            self._failed(str(error))
            self.unserved = str(error)
            return False
        except (ApiError, KeyError, TypeError, ValueError, OSError) as error:
            self._failed(str(error))
            return False
        self.published, self.unserved = "published", ""
        if changed:
            logger.info("published %d devices", len(inventory.all_devices()))
        return True

    def _failed(self, why: str) -> None:
        self.published = f"failed: {why}"
        logger.warning("could not publish the ResourceSlices, will retry: %s", why)


class ResourceSlices:
    """The slices of one driver: the pool of this node, and the network pools that this node shares with others.

    Every agent publishes the network pools, and there is no leader: names and content follow from the devices alone, so
    agents with the same devices want the same slices. Devices may differ while a change spreads over the nodes. So an
    agent writes a network pool when it starts and when its own devices change, and after that only if the pool is
    missing or incomplete: agents do not overwrite each other in turn, and the last change stays. An agent withdraws a
    network pool only when the pool leaves its own devices.
    """

    def __init__(self, server: ApiServer, node: str) -> None:
        self._server = server
        self._node = node
        self._network: dict[str, NetworkPool] = {}  # the network pools that we have published, as they were then
        self._stored: dict[str, tuple[object, object]] = {}  # by name: the slice we want, and the server's form of it

    def forget(self) -> None:
        """Ask the server again: it may store more fields of a slice than before."""
        self._stored.clear()

    def publish(self, inventory: Inventory) -> int:
        """Publish the slices, and return how many changed. This node's own come first: others can publish the rest."""
        return self._publish_own(inventory) + self._publish_network(inventory)

    def _publish_own(self, inventory: Inventory) -> int:
        found = self._found(inventory.driver, self._node)
        owner = self._owner()
        # A pool cannot be renamed. The old one is removed first: no device may be offered in two pools.
        gone = [name for name, item in found.items() if _pool(item)["name"] != inventory.pool]
        self._delete(gone)
        kept = {name: item for name, item in found.items() if name not in gone}
        return len(gone) + self._replace(kept, lambda number: slices_of(inventory, self._node, owner, number))

    def _publish_network(self, inventory: Inventory) -> int:
        wanted = {pool.name: pool for pool in inventory.network}
        if not wanted and not self._network:
            return 0
        found = self._found(inventory.driver, "")
        changed = 0
        for name in self._network.keys() - wanted.keys():
            changed += self._delete(_of_pool(found, inventory.driver, name))
            del self._network[name]
        for name, pool in wanted.items():
            there = _of_pool(found, inventory.driver, name)
            if self._network.get(name) == pool and _is_complete(there):
                continue
            changed += self._replace(there, lambda number, pool=pool: network_slices_of(inventory.driver, pool, number))  # type: ignore[misc]
            self._network[name] = pool
        return changed

    def _replace(self, found: Mapping[str, Item], slices: Callable[[int], Iterable[Item]]) -> int:
        """Write the slices of one pool unless they are as they should be; `slices` makes those of a generation."""
        generation = max((int(_pool(item)["generation"]) for item in found.values()), default=1)
        wanted = _named(slices(generation))
        if found.keys() == wanted.keys() and all(self._agree(found[name], wanted[name]) for name in wanted):
            return 0
        if found:  # a changed pool gets a new generation, so that no reader mixes old and new slices
            wanted = _named(slices(generation + 1))
        for name, item in wanted.items():
            self._stored[name] = (_content(item), _content(self._write(item, found.get(name))))
        return len(wanted) + self._delete(found.keys() - wanted.keys())

    def _owner(self) -> dict[str, Any]:
        """The slices are deleted with the node; without an owner they would stay for ever."""
        node = self._server.node(self._node)
        uid = node["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid, "controller": True}

    def _found(self, driver: str, node: str) -> dict[str, Item]:
        """The slices of a driver on a node, by name; with "" as the node, those that belong to no single node."""
        selector = quote(f"spec.driver={driver},spec.nodeName={node}", "")
        try:
            answer = self._server.request("GET", f"/resourceslices?fieldSelector={selector}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND and "v1" not in (served := self._server.served_versions()):
                has = f"only {', '.join(served)}" if served else "nothing of it"
                raise NotServed(
                    f"the API server does not serve resource.k8s.io/v1 (it has {has}): the agent needs Kubernetes 1.34 "
                    "or newer with this API on; it continues by itself once the API is there"
                ) from error
            raise
        return _named(answer.get("items") or [])

    def _delete(self, names: Iterable[str]) -> int:
        gone = list(names)
        for name in gone:
            try:
                self._server.request("DELETE", _path(name))
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
        return len(gone)

    def _agree(self, found: Item, wanted: Item) -> bool:
        name, content = wanted["metadata"]["name"], _content(wanted)
        if _content(found) == _content(_with_times(wanted, found)):
            return True
        if self._stored.get(name, (None, None))[0] != content:
            self._stored[name] = (content, _content(self._write(wanted, found, "?dryRun=All")))
        return self._stored[name][1] == _content(found)

    def _write(self, item: Item, found: Item | None, option: str = "") -> Item:
        if found is None:
            return self._server.request("POST", "/resourceslices", item)
        version = found["metadata"].get("resourceVersion", "")
        item = {**_with_times(item, found), "metadata": {**item["metadata"], "resourceVersion": version}}
        return self._server.request("PUT", f"{_path(item['metadata']['name'])}{option}", item)


def _named(items: Iterable[Item]) -> dict[str, Item]:
    return {item["metadata"]["name"]: item for item in items}


def _pool(item: Item) -> Item:
    pool: Item = item["spec"]["pool"]
    return pool


def _of_pool(found: Mapping[str, Item], driver: str, pool: str) -> dict[str, Item]:
    """The slices that agents wrote for a network pool; a controller may have others of the same driver."""
    beginning = f"{network_name(driver, pool)}-"
    return {name: item for name, item in found.items() if name.startswith(beginning)}


def _is_complete(found: Mapping[str, Item]) -> bool:
    pools = [_pool(item) for item in found.values()]
    same = {(pool["generation"], pool["resourceSliceCount"]) for pool in pools}
    return len(same) == 1 and pools[0]["resourceSliceCount"] == len(pools)


def _with_times(wanted: Item, found: Item) -> Item:
    """The server sets the time of a taint in every write that has none, so an existing taint must keep its time."""
    times = {
        (device["name"], *_taint(taint)): taint["timeAdded"]
        for device in found["spec"].get("devices") or []
        for taint in device.get("taints") or []
        if "timeAdded" in taint
    }
    if not times:
        return wanted

    def timed(device: str, taint: Item) -> Item:
        known = times.get((device, *_taint(taint)))
        return {**taint, "timeAdded": known} if known else taint

    devices = [
        {**device, "taints": [timed(device["name"], taint) for taint in device["taints"]]}
        if "taints" in device
        else device
        for device in wanted["spec"].get("devices") or []
    ]
    return {**wanted, "spec": {**wanted["spec"], "devices": devices}}


def _taint(taint: Item) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint["effect"]


def _content(item: Item) -> object:
    """What is ours in a slice; the rest of its metadata is the server's."""
    return item["metadata"].get("ownerReferences"), item["spec"]


def _path(name: str) -> str:
    return f"/resourceslices/{quote(name, '')}"
