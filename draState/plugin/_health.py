"""The health of this node's devices: asks the driver, checks the device nodes of the devices that it does not judge,
and reports to kubelet.

A device whose node is gone is unhealthy until the node is back. While a device of this node is unhealthy, its slice has
a taint, so that no new claim gets it. It checks once a second, in a thread, with an lstat per node. inotify would be
quicker and miss more: a node on devtmpfs or behind a mount may disappear without an event, and a missing folder cannot
be watched.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .. import Health
from .._errors import in_one_line
from ._draplugin import logged_stream
from ._driver import Finding
from ._inventory import Device, Inventory
from ._wire import HEALTH_V1, HEALTH_V1ALPHA1, DRAResourceHealth, Handlers

logger = logging.getLogger("draState.plugin")

LOOK_SECONDS = 1.0  # between two checks
HANGS = "the health check hangs"
MAX_LINKS = 40  # followed in a row: the kernel's limit
NUMBERS = {Health.UNKNOWN: 0, Health.HEALTHY: 1, Health.UNHEALTHY: 2}  # in the API and in the metric
TIMEOUT_SECONDS = 30  # kubelet treats a device without news for this long as unknown; also its default
HEARTBEAT_SECONDS = TIMEOUT_SECONDS / 3  # between messages if nothing changes; two of them may be late
MAX_MESSAGE = 1024  # characters; kubelet cuts longer ones

Findings = Mapping[tuple[str, str], Finding]  # by pool and device


class HealthWatch:
    """`run` it as a task. Findings are replaced as a whole, so readers in other threads need no lock."""

    def __init__(
        self,
        inventory: Callable[[], Inventory],
        host_root: str = "/",
        ask: Callable[[], Mapping[str, Finding]] = dict,
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        """`host_root` is where the root of the host is mounted; `ask` returns what the driver says, by device."""
        self._on_change = on_change
        self._checking: asyncio.Future[Findings] | None = None
        self._inventory = inventory
        self._host_root = host_root
        self._ask = ask
        self.findings: Findings = {}  # what is known now, by pool and device
        self.looked = 0.0  # time.time() of the findings
        self._changed = asyncio.Event()  # replaced after each change, so that every waiter sees it

    async def run(self) -> None:
        """Check for ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Check once, now. While a check hangs there is no other, and each finding becomes unknown at its time-out."""
        self._checking = self._checking or _started(self._look)
        await asyncio.wait([self._checking], timeout=LOOK_SECONDS)
        before = self.findings
        if self._checking.done():
            found, self.looked, self._checking = self._checking.result(), time.time(), None
        else:
            found = self._without_the_expired()
        if found == before:
            return
        self.findings = found
        self._on_change()
        for key in found:
            _log(key, before.get(key), found[key])
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _look(self) -> Findings:
        devices = self._inventory().all_devices()
        try:
            said = self._ask()
        except Exception as error:  # noqa: BLE001  (a hook is foreign code)
            failed = Finding(Health.UNKNOWN, f"the driver's health check failed: {in_one_line(error)}")
            return dict.fromkeys(devices, failed)
        return {key: said.get(key[1]) or _finding(device, self._host_root) for key, device in devices.items()}

    def _without_the_expired(self) -> Findings:
        age = time.time() - self.looked
        never = Finding(Health.UNKNOWN)
        known = {key: self.findings.get(key, never) for key in self._inventory().all_devices()}
        return {
            key: found if age < found.timeout else replace(found, health=Health.UNKNOWN, message=HANGS)
            for key, found in known.items()
        }

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


class HealthStreamService:
    """The DRAResourceHealth service: kubelet opens a stream and receives the health of the devices.

    Each message is the complete list, made at the moment it is sent. So a client that reads slowly or not at all gets
    fewer messages and never old ones: nothing is queued for it, and only its own stream waits.
    """

    services = (HEALTH_V1.version, HEALTH_V1ALPHA1.version)  # for the registration

    def __init__(self, health: HealthWatch, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self._health = health
        self._heartbeat = heartbeat
        self._streams: set[asyncio.Task[Any]] = set()
        self._stopped = False

    def handlers(self) -> Handlers:
        """The call of both versions of the service, by path."""
        return {api.watch.path: api.watch.stream(self._watch(api)) for api in (HEALTH_V1, HEALTH_V1ALPHA1)}

    def stop(self) -> None:
        """End all streams. A client that does not read its stream notices when the socket closes."""
        self._stopped = True
        for task in self._streams:
            task.cancel()

    def _watch(self, api: DRAResourceHealth) -> Callable[[Any, Any], Any]:
        async def watch(request: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            task = asyncio.current_task()
            assert task, "the server runs each stream as a task"
            self._streams.add(task)
            try:
                with logged_stream(api.watch.path):
                    async for _ in self._news():
                        await context.write(self._reply(api))
            except asyncio.CancelledError:
                if not self._stopped:  # the client is gone
                    raise
            finally:
                self._streams.discard(task)

        return watch

    async def _news(self) -> AsyncIterator[None]:
        """Yields whenever there is something to send."""
        sent: object = None
        looked = 0.0
        while not self._stopped:
            findings, now = self._health.findings, self._health.looked
            # Without a new check there is no news; kubelet then notices that we are stuck.
            if findings != sent or now > looked:
                sent, looked = findings, now
                yield
            soonest = min((found.timeout / 3 for found in findings.values()), default=self._heartbeat)
            await self._health.changed(findings, min(self._heartbeat, soonest))

    def _reply(self, api: DRAResourceHealth) -> Any:
        reply = api.watch.reply()
        looked = int(self._health.looked)
        for (pool, name), finding in self._health.findings.items():
            reply.devices.add(
                device={"pool_name": pool, "device_name": name},
                health=NUMBERS[finding.health],
                last_updated_time=looked,
                health_check_timeout_seconds=int(finding.timeout),
                message=finding.message[:MAX_MESSAGE],
            )
        return reply


class HealthMetrics(Collector):
    """One series per device, made at each scrape."""

    def __init__(self, health: HealthWatch, registry: CollectorRegistry) -> None:
        self._health = health
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "dra_agent_device_health",
            "Health of a device: 0 unknown, 1 healthy, 2 unhealthy.",
            labels=["pool_name", "device_name"],
        )
        for key, finding in self._health.findings.items():
            family.add_metric(key, NUMBERS[finding.health])
        return [family]


def tainted(inventory: Inventory, findings: Findings) -> Inventory:
    """What is offered while devices are unhealthy. Network pools stay as they are: other nodes may see them well."""
    taint = {"key": f"{inventory.driver}/unhealthy", "effect": "NoSchedule"}
    ill = {name for (_, name), found in findings.items() if found.health is Health.UNHEALTHY}
    devices = (replace(each, taints=(*each.taints, taint)) if each.name in ill else each for each in inventory.devices)
    return replace(inventory, devices=tuple(devices))


def _started(check: Callable[[], Findings]) -> asyncio.Future[Findings]:
    """A thread of its own for each check: one that hangs must not keep the process from ending."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Findings] = loop.create_future()

    def run() -> None:
        found = check()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(result.set_result, found)

    threading.Thread(target=run, name="health", daemon=True).start()
    return result


def _finding(device: Device, host_root: str) -> Finding:
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
