"""The life of one driver: wait for the state, load it, make the CDI files agree, serve, and shut down in order."""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from checkpointmanager import DirectoryLocked, MemoryStore, __version__
from checkpointmanager.aio import KeyedThreads
from checkpointmanager.metrics import CheckpointMetrics

from .. import ClaimEvent, ClaimEventKind, ClaimInfoCache, ClaimPreparer, PodConfigStore
from .._errors import in_one_line
from ..aio import AsyncClaimInfoCache, AsyncClaimPreparer
from ..metrics import ClaimMetrics, PreparerMetrics
from ._apiserver import ApiServer
from ._cdi import CdiFolder
from ._credentials import from_kubeconfig, in_cluster
from ._draplugin import PluginService, RegistrationService
from ._driver import Driver
from ._health import HealthMetrics, HealthStreamService, HealthWatch, tainted
from ._heldclaims import HeldClaimsService, PodResourcesService, watch_orphans
from ._hooks import Caller, PluginHooks, synchronize_configs
from ._inventory import Inventory
from ._publisher import Publisher
from ._reports import DeviceStatuses, Events, Outbox
from ._settings import Settings, SettingsError
from ._sockets import Door, SocketServer, make_folder, remove_dead
from ._status import Phase, Status, disk_problem
from ._users import Processes

logger = logging.getLogger("draState.plugin")

SERVICES = (*PluginService.services, *HealthStreamService.services)
LOCK_SLICE_SECONDS = 0.5  # the length of one attempt of a standby, and so the longest delay before it notices SIGTERM
CONFIRM_SECONDS = 1.0  # between two attempts to look up what was answered from memory
HEAL_SECONDS = 10.0  # between two attempts to heal damaged claims
WATCH_SECONDS = 1.0  # between two checks of the sockets, the disk and the driver's devices


class Plugin:
    """Call `run` once. Set `stopping` to end it in order, from any phase."""

    def __init__(self, driver: Driver, settings: Settings) -> None:
        self.driver = driver
        self.stopping = asyncio.Event()
        self.registry = registry = CollectorRegistry()
        self._settings = settings
        self._places = places = settings.places(driver.name)
        self._caller = Caller()
        self._inventory = Inventory("", "", ())  # until the driver was asked
        self._metrics = CheckpointMetrics(registry)
        self._server = ApiServer(
            from_kubeconfig(settings.kubeconfig) if settings.kubeconfig else in_cluster(), settings.api_timeout
        )
        self._publisher = Publisher(self._server, settings.node, self._published)
        self._outbox = Outbox(self._server)
        self._events = Events(self._outbox, driver.name, settings.node)
        registration = RegistrationService(driver.name, places.dra_socket, SERVICES, self._publisher.registered)
        self.status = Status(registration, self._publisher)
        self._door = Door()
        self._sockets = [
            SocketServer(places.dra_socket, self._door.handlers),
            SocketServer(places.registration_socket, registration.handlers(), mode=0o755),  # as kubelet makes it
        ]
        build = Gauge("dra_agent_build_info", "1, labelled with versions.", ["version", "python"], registry=registry)
        build.labels(__version__, platform.python_version()).set(1)
        phase = Gauge(
            "dra_agent_phase", "1 for the current phase of the agent, 0 for the others.", ["phase"], registry=registry
        )
        for name in Phase:
            phase.labels(name).set_function(lambda name=name: float(self.status.phase is name))  # type: ignore[misc]
        registered = Gauge("dra_agent_registered", "1 if kubelet has registered the plugin.", registry=registry)
        registered.set_function(lambda: float(registration.registered))

    async def run(self) -> None:
        try:
            self._inventory = await self._offered()
        except ValueError as error:
            raise SettingsError(f"driver {self.driver.name}: {error}") from error
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

    async def _listen(self) -> None:
        for each in self._sockets:  # the one that kubelet watches for comes last
            await each.start()

    async def _stop_listening(self) -> None:
        for each in reversed(self._sockets):
            await each.stop(self._settings.grace)

    async def _offered(self) -> Inventory:
        """What the driver offers now. Raises ValueError if it breaks a rule."""
        devices = tuple(await self._caller.call(self.driver.devices))
        network = tuple(await self._caller.call(self.driver.network_pools))
        counters = await self._caller.call(self.driver.shared_counters)
        found = Inventory(self.driver.name, self.driver.pool or self._settings.node, devices, network, counters)
        if found != self._inventory:
            found.check()
        return found

    def _published(self) -> Inventory:
        return tainted(self._inventory, self.status.health.findings if self.status.health else {})

    async def _take_over(self) -> AsyncClaimInfoCache | None:
        """The state once this process owns it; None if the plugin has to stop first."""
        threads = KeyedThreads(name="claims")
        while not self.stopping.is_set():
            try:
                cache = await AsyncClaimInfoCache.open(self._open_cache, threads)
            except DirectoryLocked as locked:
                if self.status.phase is not Phase.STANDBY:
                    logger.info("standing by: %s", locked)
                    if self._settings.pod_uid:  # with sockets of its own: kubelet's calls wait here
                        await self._listen()
                self.status.phase, self.status.owner = Phase.STANDBY, locked.owner
                continue
            self.status.owner = None
            ClaimMetrics(cache.cache, self.registry)
            return cache
        await threads.close()
        return None

    def _open_cache(self) -> ClaimInfoCache:
        return ClaimInfoCache(self._places.state or MemoryStore(), **self._options())

    def _open_pods(self) -> PodConfigStore:
        """Call this only while we own the claims: then no other process has this store open."""
        self.status.pods = PodConfigStore(self._places.pods if self._places.state else MemoryStore(), **self._options())
        return self.status.pods

    def _options(self) -> dict[str, Any]:
        settings = self._settings
        if not self._places.state:
            return {"boot_id": settings.boot_id or None}
        return {
            "boot_id": settings.boot_id or None,
            "owner": settings.pod_name,
            "lock_timeout": LOCK_SLICE_SECONDS,
            "allow_insecure": settings.allow_insecure,
            "metrics": self._metrics,
        }

    async def _serve(self, cache: AsyncClaimInfoCache) -> None:
        await self._look_at_devices()  # they may have changed while another process owned the state
        make_folder(self._places.cdi, 0o755)  # runtimes and their users read it
        pods = await cache.threads.call(self._open_pods)
        try:
            preparer = await self._restored(cache, pods)
            await self._serve_restored(cache, preparer)
        finally:
            await cache.threads.drained()  # calls that outlived the grace period may still set configs
            await cache.threads.call(pods.close)

    async def _serve_restored(self, cache: AsyncClaimInfoCache, preparer: AsyncClaimPreparer) -> None:
        places, status = self._places, self.status
        watch = HealthWatch(
            lambda: self._inventory,
            self._settings.host_root,
            lambda: self._caller.result(self.driver.health()),
            self._publisher.look,
        )
        HealthMetrics(watch, self.registry)
        await watch.look()  # before kubelet asks
        status.health = watch
        streams = HealthStreamService(watch)
        handlers = {
            **PluginService(preparer, self.registry).handlers(),
            **PodResourcesService(cache.cache).handlers(),
            **HeldClaimsService(preparer).handlers(),
            **streams.handlers(),
        }
        tasks: list[asyncio.Task[None]] = []
        try:
            self._door.open(handlers)
            await self._listen()
            remove_dead(places.plugin, "dra*.sock")
            remove_dead(places.registry, f"{self.driver.name}*-reg.sock")
            status.phase = Phase.SERVING
            logger.info("serving %d claims on %s", len(cache.cache), places.dra_socket)
            for work in (
                self._publisher.run(),
                self._outbox.run(),
                watch_orphans(preparer, self._settings.release_orphans_after),
                watch.run(),
                _every(CONFIRM_SECONDS, preparer.confirm),
                _every(HEAL_SECONDS, preparer.heal),
                _every(WATCH_SECONDS, self._look_at_sockets),
                _every(WATCH_SECONDS, self._look_at_devices),
                _every(WATCH_SECONDS, self._look_at_disk),
            ):
                tasks.append(asyncio.create_task(work))
            await self.stopping.wait()
        finally:
            status.phase = Phase.STOPPING
            logger.info("stopping")
            for task in tasks:
                task.cancel()
            streams.stop()
            await self._stop_listening()
            preparer.preparer.close()

    async def _restored(self, cache: AsyncClaimInfoCache, pods: PodConfigStore) -> AsyncClaimPreparer:
        """Make claims, CDI files and pod configs agree before the sockets appear."""
        settings = self._settings
        cdi = CdiFolder(self._places.cdi, self.driver.name)
        # A file without a claim is no leftover: it shows that the claim's record was lost.
        for path, error in cdi.sweep(claim.uid for claim in cache.cache if claim.from_this_boot is False).items():
            logger.error("%s: leftover file cannot be removed (%s); remove it by hand", path, error)
        hooks = PluginHooks(
            self.driver,
            caller=self._caller,
            inventory=lambda: self._inventory,
            cdi=cdi,
            pods=pods,
            server=self._server,
            processes=Processes(settings.proc_dir, settings.host_root),
            statuses=DeviceStatuses(self._outbox, self.driver.name, settings.node),
        )
        sync = ClaimPreparer(cache.cache, hooks, look_up_seconds=settings.api_timeout, on_event=self._happened)
        PreparerMetrics(sync, self.registry)
        self.status.preparer = sync
        preparer = AsyncClaimPreparer(sync, cache.threads)
        await preparer.restore()
        await preparer.heal()  # before another claim can get a device of a damaged one
        await cache.threads.call(lambda: synchronize_configs(pods, cache.cache))
        return preparer

    def _happened(self, event: ClaimEvent) -> None:
        self._events.happened(event)
        if event.kind is ClaimEventKind.STATE_LOST:
            self._lost(event.detail)

    async def _look_at_sockets(self) -> None:
        """Without its sockets the plugin gets no calls: let the probe restart it."""
        for each in self._sockets:
            if not each.in_place():
                self._lost(f"{each.path}: the socket was removed or replaced")

    async def _look_at_disk(self) -> None:
        found = await asyncio.to_thread(disk_problem, self._places.state) if self._places.state else ""
        if found != self.status.disk:
            logger.log(logging.ERROR if found else logging.INFO, found or "claims can be written again")
        self.status.disk = found

    async def _look_at_devices(self) -> None:
        """Changed devices apply from the next prepare on; what cannot be used changes nothing."""
        before = self.status.inventory
        try:
            found = await self._offered()
        except Exception as error:  # noqa: BLE001  (a hook is foreign code)
            self.status.inventory = in_one_line(error)
            if self.status.inventory != before:
                logger.error("keeping the previous devices: %s", self.status.inventory)
            return
        self.status.inventory = "good"
        if found != self._inventory:
            self._inventory = found
            logger.info("%d devices are offered now", len(found.all_devices()))
            self._publisher.look()

    def _lost(self, why: str) -> None:
        if not self.status.failure:
            logger.error("a restart is needed: %s", why)
        self.status.failure = why


async def _every(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    while True:
        await work()
        await asyncio.sleep(seconds)
