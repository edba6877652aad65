"""The slices that agents of several nodes publish, one attempt at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from draState.plugin import ApiServer, Credentials, Inventory, Publisher
from draState.plugin.rehearsal import LocalApiServer


class PublishingNode:
    """A node whose agent is asked to publish by hand."""

    def __init__(self, cluster: LocalApiServer, name: str = "n1") -> None:
        self._cluster = cluster
        self._offered: Inventory | None = None
        server = ApiServer(Credentials("127.0.0.1", int(cluster.address.rpartition(":")[2])), 5)
        self.publisher = Publisher(server, name, self._inventory)

    def publish(self, inventory: Inventory) -> int:
        """Returns how many slices were written."""
        before = self._cluster.writes
        assert self.attempt(inventory) == "published"
        return self._cluster.writes - before

    def attempt(self, inventory: Inventory) -> str:
        """Returns how it ended, for people."""
        self._offered = inventory
        asyncio.run(self.publisher.publish())
        return self.publisher.published

    def _inventory(self) -> Inventory:
        assert self._offered
        return self._offered


def generations(cluster: LocalApiServer) -> list[int]:
    return [item["spec"]["pool"]["generation"] for item in cluster.slices()]


def change(cluster: LocalApiServer, item: dict[str, Any], **spec: Any) -> None:
    """Somebody else changes a slice."""
    cluster.put(f"/resourceslices/{item['metadata']['name']}", {**item, "spec": {**item["spec"], **spec}})


def remove(cluster: LocalApiServer, item: dict[str, Any]) -> None:
    """Somebody else deletes a slice."""
    cluster.delete(f"/resourceslices/{item['metadata']['name']}")
