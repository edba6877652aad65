"""A driver's claims and the configs of pods for asyncio: await writes, call reads directly.

    async with await AsyncClaimPreparer.open("/var/lib/agent/claims", hooks) as preparer:
        await preparer.prepare([ref])
        preparer.preparer.cache.get(uid)

Changes of one claim happen in the order in which they were awaited; those of different claims overlap.
See checkpointmanager.aio.KeyedThreads for what a cancellation does. Kubelet's side has no twin for asyncio; run its
calls in KeyedThreads: await threads.run([pod.uid], lambda: manager.prepare_resources(pod)).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self, Unpack

from checkpointmanager import FileOptions, Store
from checkpointmanager.aio import AsyncCache, KeyedThreads

from ._claims.cache import ClaimInfoCache
from ._draplugin import ClaimRef, PrepareResult
from ._driver.events import ClaimEvent
from ._driver.hooks import DriverHooks
from ._driver.preparer import LOOK_UP_SECONDS, ClaimPreparer
from ._driver.review import Orphan
from ._podconfigs.store import PodConfigStore

__all__ = [
    "AsyncClaimInfoCache",
    "AsyncClaimPreparer",
    "AsyncPodConfigStore",
]


class AsyncClaimInfoCache(AsyncCache[ClaimInfoCache]):
    """Wraps an open cache; `open` creates one. Read from `cache` itself: reads never wait.

    Write in the turn of the claim: `await claims.threads.run([uid], lambda: claims.cache.delete(uid))`.
    """


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
        return await self._threads.run([uid], lambda: self.preparer.release(uid, force=force))

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
        async with self._threads.turn([ref.uid]):
            found = await self.preparer.look_ups.start(ref).found()
            return await self._threads.call(lambda: self.preparer.prepare_found(ref, found, deadline))

    async def _unprepare(self, ref: ClaimRef) -> str:
        errors = await self._threads.run([ref.uid], lambda: self.preparer.unprepare([ref]))
        return errors[ref.uid]


class AsyncPodConfigStore(AsyncCache[PodConfigStore]):
    """Wraps an open store; `open` creates one. Read from `cache` itself: reads never wait.

    Change a pod in its turn: `await configs.threads.run([pod_uid], lambda: configs.cache.delete_pod(pod_uid))`. What
    concerns a claim or all pods runs as `await configs.threads.call(lambda: configs.cache.follow_claims(claims))`.
    """
