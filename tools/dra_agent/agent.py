"""The life of the agent: wait for the state, load it, make the CDI files agree, serve, and shut down in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, Gauge

from checkpointmanager import DirectoryLocked, FileOptions, MemoryStore
from checkpointmanager.aio import KeyedThreads
from checkpointmanager.metrics import CheckpointMetrics
from draState import ClaimEvent, ClaimEventKind, ClaimInfoCache, ClaimPreparer, PodConfigStore
from draState.aio import AsyncClaimInfoCache, AsyncClaimPreparer
from draState.metrics import ClaimMetrics, PreparerMetrics

from . import disk, podconfigs
from .apiserver import ApiServer
from .calls import Calls
from .cdi import CdiFolder
from .cdihooks import CdiHooks
from .devicehealth import DeviceHealth, HealthMetrics
from .door import Door
from .folders import make_folder
from .health import HealthService
from .healthstream import HealthStreamService
from .heldclaims import HeldClaimsService
from .kubeconfig import from_kubeconfig, in_cluster
from .orphans import watch_orphans
from .plugin import PluginService
from .podresources import PodResourcesService
from .publisher import Publisher
from .registration import RegistrationService
from .settings import Settings
from .sockets import SocketServer, remove_dead
from .status import Phase, Status
from .users import Processes
from .web import WebServer
from .wire import V1, V1BETA1

logger = logging.getLogger("dra_agent")

LOCK_SLICE_SECONDS = 0.5  # the length of one attempt of a standby, and so the longest delay before it notices SIGTERM
CONFIRM_SECONDS = 1.0  # between two attempts to look up what was answered from memory
HEAL_SECONDS = 10.0  # between two attempts to heal damaged claims
WATCH_SECONDS = 1.0  # between two checks of the sockets, the disk and the device file


class Agent:
    """Call `run` once. Set `stopping` to end it in order, from any phase."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.status = Status()
        self.stopping = asyncio.Event()
        self._registry = CollectorRegistry()
        self._metrics = CheckpointMetrics(self._registry)
        self._server = ApiServer(
            from_kubeconfig(settings.kubeconfig) if settings.kubeconfig else in_cluster(), settings.api_timeout
        )
        self._publisher = Publisher(self._server, settings.devices, settings.node, self.status)
        registration = RegistrationService(settings, self.status, self._publisher.registered)
        self._door = Door()
        self._sockets = [
            SocketServer(settings.dra_socket, self._door.handlers()),
            SocketServer(settings.registration_socket, registration.handlers(), mode=0o755),  # as kubelet makes it
        ]
        phase = Gauge(
            "dra_agent_phase",
            "1 for the current phase of the agent, 0 for the others.",
            ["phase"],
            registry=self._registry,
        )
        for name in Phase:
            phase.labels(name).set_function(lambda name=name: float(self.status.phase is name))  # type: ignore[misc]
        registered = Gauge("dra_agent_registered", "1 if kubelet has registered the plugin.", registry=self._registry)
        registered.set_function(lambda: float(self.status.registered))

    async def run(self) -> None:
        web = WebServer(self._settings.http, self.status, self._registry)
        host, port = await web.start()
        logger.info("listening on http://%s:%d", host, port)
        try:
            cache = await self._take_over()
            if cache:
                try:
                    await self._serve(cache)
                finally:
                    # Last of all: a standby takes over when the lock is released.
                    await cache.close()
        finally:
            self._door.shut()
            await self._stop_listening()
            await web.stop()
            logger.info("ended")

    async def _listen(self) -> None:
        for each in self._sockets:  # the one that kubelet watches for comes last
            await each.start()

    async def _stop_listening(self) -> None:
        for each in reversed(self._sockets):
            await each.stop(self._settings.grace)

    async def _take_over(self) -> AsyncClaimInfoCache | None:
        """The state once this process owns it; None if the agent has to stop first."""
        threads = KeyedThreads(name="claims")
        while not self.stopping.is_set():
            try:
                cache = await AsyncClaimInfoCache.open(self._open_cache, threads)
            except DirectoryLocked as locked:
                if self.status.phase is not Phase.STANDBY:
                    logger.info("standing by: %s", locked)
                    if self._settings.instance:  # with sockets of its own: kubelet's calls wait here
                        await self._listen()
                self.status.phase, self.status.owner = Phase.STANDBY, locked.owner
                continue
            self.status.owner = None
            self.status.cache = cache.cache
            ClaimMetrics(cache.cache, self._registry)
            return cache
        await threads.close()
        return None

    def _open_cache(self) -> ClaimInfoCache:
        place = self._settings.state or MemoryStore()
        return ClaimInfoCache(place, boot_id=self._settings.boot_id, **self._file_options())

    def _open_pods(self) -> PodConfigStore:
        """Call this only while we own the claims: then no other agent has this store open."""
        place = self._settings.pods if self._settings.state else MemoryStore()
        self.status.pods = PodConfigStore(place, boot_id=self._settings.boot_id, **self._file_options())
        return self.status.pods

    def _file_options(self) -> FileOptions:
        if not self._settings.state:
            return FileOptions()
        return FileOptions(
            owner=self._settings.owner,
            lock_timeout=LOCK_SLICE_SECONDS,
            allow_insecure=self._settings.allow_insecure,
            metrics=self._metrics,
        )

    async def _serve(self, cache: AsyncClaimInfoCache) -> None:
        self._settings.devices.refresh()  # the file may have changed while another process owned the state
        make_folder(self._settings.cdi, 0o755)  # runtimes and their users read it
        pods = await cache.threads.call(self._open_pods)
        try:
            preparer = await self._restored(cache, pods)
            await self._serve_restored(cache, preparer)
        finally:
            await cache.threads.drained()  # calls that outlived the grace period may still set configs
            await cache.threads.call(pods.close)

    async def _serve_restored(self, cache: AsyncClaimInfoCache, preparer: AsyncClaimPreparer) -> None:
        settings, status = self._settings, self.status
        devices = DeviceHealth(lambda: settings.devices.current, settings.host_root)
        HealthMetrics(devices, self._registry)
        await devices.look()  # before kubelet asks
        status.health = devices
        health, streams = HealthService(), HealthStreamService(devices)
        handlers = {**self._handlers(cache, preparer), **health.handlers(), **streams.handlers()}
        tasks: list[asyncio.Task[None]] = []
        try:
            self._sockets[0].serve(handlers)
            self._door.open(handlers)
            await self._listen()
            remove_dead(settings.plugin, "dra*.sock")
            remove_dead(settings.registry, f"{settings.devices.current.driver}*-reg.sock")
            status.phase = Phase.SERVING
            logger.info("serving %d claims on %s", len(cache.cache), settings.dra_socket)
            for work in (
                self._publisher.run(),
                self._watch(),
                self._watch_devices(),
                watch_orphans(preparer, settings.release_orphans_after),
                _every(CONFIRM_SECONDS, preparer.confirm),
                _every(HEAL_SECONDS, preparer.heal),
                _every(WATCH_SECONDS, self._look_at_disk),
                devices.run(),
            ):
                tasks.append(asyncio.create_task(work))
            await self.stopping.wait()
        finally:
            status.phase = Phase.STOPPING
            logger.info("stopping")
            for task in tasks:
                task.cancel()
            await health.stop()
            streams.stop()
            await self._stop_listening()
            preparer.preparer.close()

    def _handlers(
        self, cache: AsyncClaimInfoCache, preparer: AsyncClaimPreparer
    ) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """The calls about claims, by path."""
        plugin = PluginService(preparer, Calls(self._settings.devices.current.driver, self._registry))
        return {
            **plugin.handlers(V1),
            **plugin.handlers(V1BETA1),
            **PodResourcesService(cache.cache).handlers(),
            **HeldClaimsService(preparer).handlers(),
        }

    async def _restored(self, cache: AsyncClaimInfoCache, pods: PodConfigStore) -> AsyncClaimPreparer:
        """Make claims, CDI files and pod configs agree before the sockets appear."""
        settings = self._settings
        cdi = CdiFolder(settings.cdi, settings.devices.current.driver)
        # A file without a claim is no leftover: it shows that the claim's record was lost.
        for path, error in cdi.sweep(claim.uid for claim in cache.cache if claim.from_this_boot is False).items():
            logger.error("%s: leftover file cannot be removed (%s); remove it by hand", path, error)
        processes = Processes(settings.proc, settings.host_root)
        hooks = CdiHooks(lambda: settings.devices.current, cdi, pods, self._server, processes)
        sync = ClaimPreparer(cache.cache, hooks, look_up_seconds=settings.api_timeout, on_event=self._happened)
        PreparerMetrics(sync, self._registry)
        self.status.preparer = sync
        preparer = AsyncClaimPreparer(sync, cache.threads)
        await preparer.restore()
        await preparer.heal()  # before another claim can get a device of a damaged one
        await cache.threads.call(lambda: podconfigs.synchronize(pods, cache.cache))
        return preparer

    def _happened(self, event: ClaimEvent) -> None:
        if event.kind is ClaimEventKind.STATE_LOST:
            self._lost(event.detail)

    async def _watch(self) -> None:
        """Without its sockets the agent gets no calls: let the probe restart it."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for each in self._sockets:
                if not each.in_place():
                    self._lost(f"{each.path}: the socket was removed or replaced")

    async def _look_at_disk(self) -> None:
        found = await asyncio.to_thread(disk.problem, self._settings.state) if self._settings.state else ""
        if found != self.status.disk:
            logger.log(logging.ERROR if found else logging.INFO, found or "claims can be written again")
        self.status.disk = found

    async def _watch_devices(self) -> None:
        """A changed device file applies from the next prepare on; an unusable one changes nothing."""
        devices, reported = self._settings.devices, ""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if await asyncio.to_thread(devices.refresh):
                logger.info("%s: reloaded, %d devices", devices.path, len(devices.current.all_devices()))
                self._publisher.look()
            if devices.error and devices.error != reported:
                logger.error("keeping the previous devices: %s", devices.error)
            reported = devices.error
            self.status.devices_file = devices.error or "good"

    def _lost(self, why: str) -> None:
        if not self.status.failure:
            logger.error("a restart is needed: %s", why)
        self.status.failure = why


async def _every(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    while True:
        await work()
        await asyncio.sleep(seconds)
