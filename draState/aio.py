"""The claim cache, its two managers and the other stores for asyncio: await writes, call reads directly.

    cache = await AsyncClaimInfoCache.open(lambda: ClaimInfoCache("/var/lib/agent/claims"))
    manager = AsyncDRAManager(DRAManager(cache.cache, drivers), cache.threads)
    await manager.prepare_resources(pod)
    cache.cache.get(uid)

    async with await AsyncClaimPreparer.open("/var/lib/agent/claims", hooks) as preparer:    # the driver's side
        await preparer.prepare([ref])

    health = await AsyncDeviceHealthStore.open(lambda: DeviceHealthStore("/var/lib/agent/health", on_change=changed))
    await health.follow(driver, stream)

Changes of one claim happen in the order in which they were awaited; those of different claims overlap.
See checkpointmanager.aio.KeyedThreads for what a cancellation does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from checkpointmanager import FileOptions, Store
from checkpointmanager.aio import AsyncCache, KeyedThreads

from ._claimcache import Change, ClaimInfoCache, Name
from ._claimevents import ClaimEvent
from ._claiminfo import ClaimInfo
from ._claimpreparer import LOOK_UP_SECONDS, ClaimPreparer
from ._devicehealth import DeviceHealth
from ._dramanager import ActivePods, DRAManager
from ._draplugin import ClaimRef, PrepareResult
from ._driverclaim import DriverClaim
from ._driverhooks import DriverHooks
from ._healthstore import DeviceHealthStore
from ._pod import Pod
from ._podconfig import DeviceConfig
from ._podconfigstore import PodConfigStore, PodSyncReport
from ._review import Orphan

__all__ = [
    "AsyncClaimInfoCache",
    "AsyncClaimPreparer",
    "AsyncDRAManager",
    "AsyncDeviceHealthStore",
    "AsyncPodConfigStore",
]

RECONCILING = "reconcile"  # its own key: the keys of claims and pods have a slash


class AsyncClaimInfoCache(AsyncCache[ClaimInfoCache]):
    """Wraps an open cache; `open` creates one. Read from `cache` itself: reads never wait."""

    async def put(self, *claims: ClaimInfo) -> None:
        """See ClaimInfoCache.put."""
        await self.threads.run(_keys_of(c.uid for c in claims), lambda: self.cache.put(*claims))

    async def change(self, uids: Iterable[str], change: Change, *, names: Iterable[Name] = ()) -> None:
        """See ClaimInfoCache.change. `change` is called in a thread other than the loop's."""
        wanted, named = list(uids), list(names)
        await self.threads.run(_keys_of(wanted), lambda: self.cache.change(wanted, change, names=named))

    async def mark(self, uid: str, **flags: Any) -> None:
        """See ClaimInfoCache.mark."""
        await self.threads.run(_keys_of([uid]), lambda: self.cache.mark(uid, **flags))

    async def delete(self, *uids: str) -> None:
        """See ClaimInfoCache.delete."""
        await self.threads.run(_keys_of(uids), lambda: self.cache.delete(*uids))


class AsyncDRAManager:
    """Wraps a DRAManager; drivers are called in threads. Pass the `threads` of its AsyncClaimInfoCache."""

    def __init__(self, manager: DRAManager, threads: KeyedThreads) -> None:
        self.manager = manager  # the synchronous one
        self._threads = threads

    async def prepare_resources(self, pod: Pod) -> None:
        """See DRAManager.prepare_resources."""
        await self._threads.run(_keys_of(pod.needed_claims(), pod.uid), lambda: self.manager.prepare_resources(pod))

    async def unprepare_resources(self, pod: Pod | str) -> None:
        """See DRAManager.unprepare_resources. Runs after every prepare of this pod that was awaited before it."""
        pod_uid = pod if isinstance(pod, str) else pod.uid
        uids = [claim.uid for claim in self.manager.cache.of_pod(pod_uid)]
        await self._threads.run(_keys_of(uids, pod_uid), lambda: self.manager.unprepare_resources(pod))

    async def unprepare_claim(self, uid: str) -> None:
        """See DRAManager.unprepare_claim."""
        await self._threads.run(_keys_of([uid]), lambda: self.manager.unprepare_claim(uid))

    async def reconcile(self, active: ActivePods | Callable[[], ActivePods], *, complete: bool) -> None:
        """See DRAManager.reconcile. One at a time; prepares and unprepares continue meanwhile."""
        await self._threads.run([RECONCILING], lambda: self.manager.reconcile(active, complete=complete))


class AsyncClaimPreparer:
    """Wraps a ClaimPreparer and its cache; `open` creates both. Hooks are called in threads.

    Calls for one claim run in the order in which they were awaited. A call that is cancelled before its turn, or
    while its allocation is looked up, does nothing.
    """

    def __init__(self, preparer: ClaimPreparer, threads: KeyedThreads) -> None:
        """`threads` are those of the AsyncClaimInfoCache that opened the preparer's cache."""
        self.preparer = preparer  # the synchronous one
        self._threads = threads

    @classmethod
    async def open(
        cls,
        directory: str | os.PathLike[str] | Store,
        hooks: DriverHooks,
        *,
        boot_id: str | None = None,
        unfinished: Literal["keep", "tear_down"] = "keep",
        look_up_seconds: float = LOOK_UP_SECONDS,
        on_event: Callable[[ClaimEvent], object] | None = None,
        **options: Unpack[FileOptions],
    ) -> Self:
        """Load the claims of a directory and restore them. See ClaimPreparer and CheckpointManager for the options."""
        cache = await AsyncClaimInfoCache.open(lambda: ClaimInfoCache(directory, boot_id=boot_id, **options))
        preparer = ClaimPreparer(
            cache.cache, hooks, unfinished=unfinished, look_up_seconds=look_up_seconds, on_event=on_event
        )
        opened = cls(preparer, cache.threads)
        try:
            await opened.restore()
        except BaseException:
            await opened.close()
            raise
        return opened

    async def close(self) -> None:
        """Wait for every call that was already awaited, then release the directory. May be called twice."""
        self.preparer.close()
        await self._threads.close(self.preparer.cache.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def restore(self) -> None:
        """See ClaimPreparer.restore."""
        await self._threads.call(self.preparer.restore)

    async def prepare(self, claims: Sequence[ClaimRef], *, deadline: float | None = None) -> dict[str, PrepareResult]:
        """See ClaimPreparer.prepare. The claims are prepared concurrently."""
        answers = await asyncio.gather(*(self._prepare(ref, deadline) for ref in claims))
        return {ref.uid: answer for ref, answer in zip(claims, answers, strict=True)}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, str]:
        """See ClaimPreparer.unprepare. The claims are unprepared concurrently."""
        errors = await asyncio.gather(*(self._unprepare(ref) for ref in claims))
        return {ref.uid: error for ref, error in zip(claims, errors, strict=True)}

    async def release(self, uid: str, *, force: bool = False) -> str:
        """See ClaimPreparer.release."""
        return await self._threads.run(_keys_of([uid]), lambda: self.preparer.release(uid, force=force))

    async def review(self) -> Mapping[str, Orphan]:
        """See Review.look. Runs in its own thread, because it may take long."""
        return await asyncio.to_thread(self.preparer.review.look)

    async def heal(self) -> None:
        """See Review.heal."""
        await asyncio.to_thread(self.preparer.review.heal)

    async def confirm(self) -> None:
        """See Review.confirm."""
        await asyncio.to_thread(self.preparer.review.confirm)

    async def _prepare(self, ref: ClaimRef, deadline: float | None) -> PrepareResult:
        async with self._threads.turn(_keys_of([ref.uid])):
            found = await self.preparer.look_ups.start(ref).found()
            return await self._threads.call(lambda: self.preparer.prepare_found(ref, found, deadline))

    async def _unprepare(self, ref: ClaimRef) -> str:
        errors = await self._threads.run(_keys_of([ref.uid]), lambda: self.preparer.unprepare([ref]))
        return errors[ref.uid]


class AsyncDeviceHealthStore(AsyncCache[DeviceHealthStore]):
    """Wraps an open store; `open` creates one. Read from `cache` itself: reads never wait.

    `on_change` is called in a thread other than the loop's.
    """

    async def report(self, driver: str, devices: Iterable[DeviceHealth]) -> None:
        """See DeviceHealthStore.report."""
        listed = list(devices)
        await self.threads.run([driver], lambda: self.cache.report(driver, listed))

    async def forget(self, driver: str) -> None:
        """See DeviceHealthStore.forget."""
        await self.threads.run([driver], lambda: self.cache.forget(driver))

    async def follow(self, driver: str, reports: AsyncIterable[Iterable[DeviceHealth]]) -> None:
        """See DeviceHealthStore.follow. A cancellation ends the stream too."""
        try:
            async for devices in reports:
                await self.report(driver, devices)
        finally:
            if not self.cache.closed:
                await self.forget(driver)


class AsyncPodConfigStore(AsyncCache[PodConfigStore]):
    """Wraps an open store; `open` creates one. Read from `cache` itself: reads never wait."""

    async def set_device_config(self, pod_uid: str, device: str, config: DeviceConfig) -> None:
        """See PodConfigStore.set_device_config."""
        await self.threads.run([pod_uid], lambda: self.cache.set_device_config(pod_uid, device, config))

    async def set_pod_config(self, pod_uid: str, config: Any) -> None:
        """See PodConfigStore.set_pod_config."""
        await self.threads.run([pod_uid], lambda: self.cache.set_pod_config(pod_uid, config))

    async def delete_pod(self, pod_uid: str) -> None:
        """See PodConfigStore.delete_pod."""
        await self.threads.run([pod_uid], lambda: self.cache.delete_pod(pod_uid))

    async def delete_claim(self, claim: str | tuple[str, str]) -> tuple[str, ...]:
        """See PodConfigStore.delete_claim."""
        return await self.threads.call(lambda: self.cache.delete_claim(claim))

    async def follow(self, claim: DriverClaim, configs: Mapping[str, Any]) -> None:
        """See PodConfigStore.follow."""
        await self.threads.run(claim.pods, lambda: self.cache.follow(claim, configs))

    async def follow_claims(self, claims: ClaimInfoCache) -> PodSyncReport | None:
        """See PodConfigStore.follow_claims."""
        return await self.threads.call(lambda: self.cache.follow_claims(claims))

    async def synchronize(
        self,
        list_live: Callable[[], Iterable[str]],
        *,
        complete: bool,
        claims: ClaimInfoCache | None = None,
        at_most: float = 0.5,
    ) -> PodSyncReport:
        """See PodConfigStore.synchronize. `list_live` is called in a thread other than the loop's."""
        return await self.threads.call(
            lambda: self.cache.synchronize(list_live, complete=complete, claims=claims, at_most=at_most)
        )


def _keys_of(uids: Iterable[str], pod_uid: str = "") -> list[str]:
    """Claims and pods have separate keys: a pod may be prepared before the cache knows which claims refer to it."""
    return [*(f"claim/{uid}" for uid in uids), *([f"pod/{pod_uid}"] if pod_uid else [])]
