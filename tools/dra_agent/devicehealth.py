"""Watches the devices of this node: a device whose device node is gone is unhealthy until the node is back.

It checks once a second with an lstat per device node, in a thread. inotify would be quicker and miss more: a node on
devtmpfs or behind a mount may disappear without an event, and a missing folder cannot be watched.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .inventory import Inventory, OfferedDevice

logger = logging.getLogger("dra_agent")

LOOK_SECONDS = 1.0  # between two checks
MAX_LINKS = 40  # followed in a row: the kernel's limit


class Health(IntEnum):
    """The health of a device; the values are the API's numbers."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known about one device, and why."""

    health: Health
    message: str = ""


Findings = Mapping[tuple[str, str], Finding]  # by pool and device


class DeviceHealth:
    """`run` it as a task. Findings are replaced as a whole, so readers in other threads need no lock."""

    def __init__(self, inventory: Callable[[], Inventory], host_root: str = "/") -> None:
        """`host_root` is where the root of the host is mounted, if it is not our own root."""
        self._inventory = inventory
        self._host_root = host_root
        self.findings: Findings = {}
        self.looked = 0.0  # time.time() of the findings
        self._changed = asyncio.Event()  # replaced after each change, so that every waiter sees it

    async def run(self) -> None:
        """Check for ever. If a check hangs, the findings get old, and kubelet treats old findings as unknown."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Check once, now."""
        found = await asyncio.to_thread(look_at, self._inventory(), self._host_root)
        before, self.findings, self.looked = self.findings, found, time.time()
        if found == before:
            return
        for key in found:
            _log(key, before.get(key), found[key])
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self, seen: Findings, limit: float) -> None:
        """Wait until the findings differ from `seen`, or for `limit` seconds."""
        if self.findings != seen:
            return
        try:
            await asyncio.wait_for(self._changed.wait(), limit)
        except TimeoutError:
            return

    def details(self) -> dict[str, object]:
        """For /readyz: the number of devices in each state, and the unhealthy ones by name."""
        findings = self.findings
        counted = Counter(finding.health for finding in findings.values())
        ill = {
            "/".join(key): finding.message
            for key, finding in sorted(findings.items())
            if finding.health is Health.UNHEALTHY
        }
        return {**{health.name.lower(): counted[health] for health in Health}, "unhealthy_devices": ill}


class HealthMetrics(Collector):
    """One series per device, made at each scrape."""

    def __init__(self, health: DeviceHealth, registry: CollectorRegistry) -> None:
        self._health = health
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "dra_agent_device_health",
            "Health of a device: 0 unknown, 1 healthy, 2 unhealthy.",
            labels=["pool_name", "device_name"],
        )
        for key, finding in self._health.findings.items():
            family.add_metric(key, finding.health)
        return [family]


def look_at(inventory: Inventory, host_root: str = "/") -> Findings:
    """Check all devices: kubelet treats a device that is not reported as unknown."""
    return {key: _finding(device, host_root) for key, device in inventory.all_devices().items()}


def _finding(device: OfferedDevice, host_root: str) -> Finding:
    if not device.device_nodes:
        return Finding(Health.UNKNOWN, "the device has no device node to check")
    for path in device.device_nodes:
        try:
            _find(path, host_root.rstrip("/"))
        except (FileNotFoundError, NotADirectoryError):
            return Finding(Health.UNHEALTHY, f"{path} is gone")
        except OSError as error:
            return Finding(Health.UNKNOWN, f"{path} cannot be checked: {error.strerror}")
    return Finding(Health.HEALTHY)


def _find(path: str, root: str) -> None:
    """Raises OSError if the path is missing. Follows links as the host does: absolute ones would lead into our root."""
    for _ in range(MAX_LINKS):
        if not stat.S_ISLNK(os.lstat(root + path).st_mode):
            return
        path = os.path.join(os.path.dirname(path), os.readlink(root + path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _log(key: tuple[str, str], before: Finding | None, now: Finding) -> None:
    if before == now or (before is None and now.health is not Health.UNHEALTHY):
        return
    level = logging.WARNING if now.health is Health.UNHEALTHY else logging.INFO
    logger.log(level, "device %s is %s%s", "/".join(key), now.health.name.lower(), now.message and f": {now.message}")
