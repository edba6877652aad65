"""Keeps the ResourceSlices correct for as long as the agent serves.

Kubelet removes all slices of its node when it starts, perhaps seconds after it has registered us again. So each
registration is followed by one check at once and several soon after; otherwise one check per minute is enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from .._apiserver.client import ApiError, ApiServer
from .._inventory import Inventory
from .resourceslices import ResourceSlices
from .writer import NotServed

logger = logging.getLogger("draState.plugin")

PERIOD_SECONDS = 60.0  # between two checks; after a failure 1, 2, 4 … up to this
AFTER_REGISTRATION = (1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 10.0)  # seconds between checks: after 1, 3, 6, 10, 15, 20, 30


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
            if await self._published():
                wait, backoff = self._waits.pop(0) if self._waits else PERIOD_SECONDS, 1.0
            else:
                wait, backoff = backoff, min(2 * backoff, PERIOD_SECONDS)
            try:
                await asyncio.wait_for(self._wanted.wait(), wait)
            except TimeoutError:
                continue

    async def _published(self) -> bool:
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
