"""Kubelet's side of the conversation: finds the socket, registers the plugin, prepares and unprepares claims.

It repeats a call that got no answer, as kubelet does, so the agent may be killed at any moment.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple

import grpc
import grpc.aio

from ... import Device, PrepareResult
from .._wire import (
    GET_INFO,
    GET_POD_RESOURCES,
    HEALTH_V1,
    HEALTH_V1ALPHA1,
    LIST_POD_RESOURCES,
    NOTIFY_STATUS,
    V1,
    V1BETA1,
    Method,
)

RETRY_SECONDS = 0.02
CALL_SECONDS = 30.0
WATCHER_SECONDS = 1.0  # between two looks of kubelet's plugin watcher at its registry
# How a call ends if the agent dies or does not run. The agent may or may not have handled it.
GONE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN})
OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 50),
    ("grpc.use_local_subchannel_pool", 1),
]


class Claim(NamedTuple):
    """What kubelet passes to a driver about a claim."""

    uid: str
    name: str
    namespace: str = "default"


class HealthReport(NamedTuple):
    """A driver's report about a device: 0 unknown, 1 healthy, 2 unhealthy."""

    health: int
    message: str  # why, for people
    updated: int  # Unix seconds
    timeout: int  # seconds


class Kubelet:
    """Plays kubelet. `patience` is the time in seconds for which it repeats a call while no agent answers; `version` is
    that of the DRAPlugin service, v1 or v1beta1.
    """

    def __init__(self, registry: str, driver: str, *, version: str = "v1", patience: float = 30.0) -> None:
        self._registry = registry
        self._driver = driver
        self._socket = os.path.join(registry, f"{driver}-reg.sock")
        self._instances: dict[str, grpc.aio.Channel] = {}  # by registration socket, in the order of registration
        self._api = {"v1": V1, "v1beta1": V1BETA1}[version]
        self._patience = patience
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._channel: grpc.aio.Channel | None = None  # of the registered plugin
        self._resumed = asyncio.Event()
        self._resumed.set()
        self.versions: list[str] = []  # the services that the plugin advertised

    async def register(self) -> Any:
        """Wait for the plugin's socket, ask for its PluginInfo, register it, and return the PluginInfo."""
        end = time.monotonic() + self._patience
        while True:
            try:
                return await self._register_once()
            except grpc.aio.AioRpcError as error:
                if error.code() not in GONE or time.monotonic() > end:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def _register_once(self) -> Any:
        async with grpc.aio.insecure_channel(f"unix:{self._socket}", OPTIONS) as channel:
            info = await GET_INFO.on(channel.unary_unary)(GET_INFO.request(), timeout=CALL_SECONDS)
            told = NOTIFY_STATUS.request(plugin_registered=True)
            await NOTIFY_STATUS.on(channel.unary_unary)(told, timeout=CALL_SECONDS)
        if info.endpoint not in self._channels:  # otherwise it is the same plugin, and running calls continue
            self._channels[info.endpoint] = grpc.aio.insecure_channel(f"unix:{info.endpoint}", OPTIONS)
        self._channel = self._channels[info.endpoint]
        self.versions = list(info.supported_versions)
        return info

    async def watch_registry(self) -> None:
        """Register and deregister instances as their sockets come and go, as kubelet does: once a second, for ever.

        Calls go to the instance that registered last, and there is no second attempt: kubelet's own comes more than a
        minute later.
        """
        while True:
            found = fnmatch.filter(os.listdir(self._registry), f"{self._driver}*-reg.sock")
            for name in self._instances.keys() - set(found):
                del self._instances[name]
            for name in set(found) - self._instances.keys():
                try:
                    self._socket = os.path.join(self._registry, name)
                    await self._register_once()
                    self._instances[name] = self.channel
                except grpc.aio.AioRpcError:
                    continue  # looked at again in a second
            self._channel = next(reversed(self._instances.values()), None)
            await asyncio.sleep(WATCHER_SECONDS)

    @property
    def registered(self) -> int:
        """The number of instances that watch_registry has registered."""
        return len(self._instances)

    async def prepare(self, *claims: Claim, once: bool = False) -> Mapping[str, PrepareResult]:
        """Prepare all claims in one call, as for a pod. Returns the answers by UID.

        `once` is a single attempt, which raises AioRpcError, or AssertionError if no instance is registered.
        """
        request = self._api.prepare.request(claims=[claim._asdict() for claim in claims])
        call = self._call if once else self._insist
        reply = await call(self._api.prepare, request)
        return {
            uid: PrepareResult(tuple(map(_device, answer.devices)), answer.error)
            for uid, answer in reply.claims.items()
        }

    async def unprepare(self, *claims: Claim) -> Mapping[str, str]:
        """Unprepare claims. Returns the errors by UID, "" for success."""
        request = self._api.unprepare.request(claims=[claim._asdict() for claim in claims])
        reply = await self._insist(self._api.unprepare, request)
        return {uid: answer.error for uid, answer in reply.claims.items()}

    async def pod_resources(self) -> Any:
        """The pods and devices that the agent lists."""
        return (await self._insist(LIST_POD_RESOURCES, LIST_POD_RESOURCES.request())).pod_resources

    async def pod(self, name: str, namespace: str = "default") -> Any:
        """One pod, as the agent lists it."""
        request = GET_POD_RESOURCES.request(pod_name=name, pod_namespace=namespace)
        return (await self._insist(GET_POD_RESOURCES, request)).pod_resources

    async def watch_health(self, version: str = "") -> AsyncIterator[dict[tuple[str, str], HealthReport]]:
        """Each complete report, by pool and device, until the agent ends the stream or dies.

        `version` is v1 or v1alpha1. Without it, like kubelet, it uses the newest one that the agent advertised.
        """
        wanted = [f"{version}.DRAResourceHealth"] if version else self.versions
        service = next(each for each in (HEALTH_V1, HEALTH_V1ALPHA1) if each.version in wanted)
        try:
            async for reply in service.watch.on(self.channel.unary_stream)(service.watch.request()):
                yield {
                    (each.device.pool_name, each.device.device_name): HealthReport(
                        each.health, each.message, each.last_updated_time, each.health_check_timeout_seconds
                    )
                    for each in reply.devices
                }
        except grpc.aio.AioRpcError as error:
            if error.code() not in GONE:
                raise

    def pause(self) -> None:
        """New and repeated calls wait until `resume`."""
        self._resumed.clear()

    def resume(self) -> None:
        """End a `pause`."""
        self._resumed.set()

    @property
    def channel(self) -> grpc.aio.Channel:
        """The connection to the plugin that registered last."""
        assert self._channel, "not registered yet"
        return self._channel

    async def close(self) -> None:
        """Close all connections."""
        self._channel = None
        while self._channels:
            await self._channels.popitem()[1].close()

    async def __aenter__(self) -> Kubelet:
        await self.register()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _insist(self, method: Method, request: Any) -> Any:
        end = time.monotonic() + self._patience
        while True:
            await self._resumed.wait()
            try:
                return await self._call(method, request, max(0.1, end - time.monotonic()))
            except grpc.aio.AioRpcError as error:
                if error.code() not in GONE or time.monotonic() > end:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def _call(self, method: Method, request: Any, limit: float = CALL_SECONDS) -> Any:
        return await method.on(self.channel.unary_unary)(request, timeout=limit)


class NothingInjected(AssertionError):
    """A container asked for devices and would run without any; neither kubelet nor the runtime reports that."""


def injected(prepared: PrepareResult, request: str = "") -> list[str]:
    """The CDI ids for a container that uses this request of the claim, or with "" the whole claim.

    Kubelet compares request names as written in the pod, where a prioritized list has one name: a device that was
    answered under "gpu/small" is not injected for "gpu".
    """
    found = [
        each
        for device in prepared.devices
        if not request or not device.request_names or request in device.request_names
        for each in device.cdi_device_ids
    ]
    if not found:
        names = sorted({name for device in prepared.devices for name in device.request_names})
        raise NothingInjected(f"no device was answered for request {request!r}, only for {names}: {prepared.error}")
    return found


def _device(sent: Any) -> Device:
    share_id = sent.share_id if sent.HasField("share_id") else None
    return Device(sent.pool_name, sent.device_name, share_id, tuple(sent.request_names), tuple(sent.cdi_device_ids))


def names(devices: Iterable[Device]) -> tuple[str, ...]:
    """The devices by name, in order."""
    return tuple(sorted(device.device_name for device in devices))
