"""The cache and the DRAManager for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointmanager._keyedthreads import THREADS
from draState import (
    Allocation,
    ClaimInfo,
    ClaimInfoCache,
    ClaimInfoState,
    ClaimInvalid,
    ClaimRef,
    Device,
    DRAManager,
    Pod,
    PrepareResult,
    ResourceClaim,
)
from draState.aio import AsyncClaimInfoCache, AsyncDRAManager

from .gates import Gate, held_syncs, new_files, until

GPU = "gpu.example.com"


class Gpus:
    """One device per claim; every call waits at the gate."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.calls: list[str] = []

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        self.gate()
        self.calls += [f"prepare {claim.uid}" for claim in claims]
        return {claim.uid: PrepareResult((Device("node", f"gpu-{claim.uid}"),)) for claim in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        self.gate()
        self.calls += [f"unprepare {claim.uid}" for claim in claims]
        return {claim.uid: "" for claim in claims}


def state(uid: str, *pods: str) -> ClaimInfoState:
    return ClaimInfoState(uid, f"claim-{uid}", "default", frozenset(pods))


def pod(uid: str, *claims: str) -> Pod:
    resources = {
        claim: ResourceClaim(claim, f"claim-{claim}", "default", {GPU: Allocation()}, frozenset({uid}))
        for claim in claims
    }
    return Pod(uid, uid, "default", resources)


async def opened(directory: Path) -> AsyncClaimInfoCache:
    return await AsyncClaimInfoCache.open(lambda: ClaimInfoCache(directory, boot_id="boot-a"))


def test_claims_are_put_changed_marked_and_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with await opened(tmp_path) as cache:
            await cache.put(ClaimInfo(state("a")), ClaimInfo(state("b")))
            await cache.change(["a"], lambda known: [replace(known["a"], state=state("a", "pod-1"))])
            await cache.mark("a", prepared=True)
            await cache.delete("b")
            claim = cache.cache.get("a")
            assert claim is not None
            assert (claim.prepared, claim.state.pod_uids) == (True, frozenset({"pod-1"}))
            await cache.close()
        async with await opened(tmp_path) as cache:
            assert [claim.uid for claim in cache.cache] == ["a"]

    asyncio.run(main())


def test_many_puts_overlap_and_readers_see_only_what_is_durable(tmp_path: Path) -> None:
    async def main() -> None:
        async with await opened(tmp_path) as cache:
            with held_syncs() as syncs:
                puts = [asyncio.create_task(cache.put(ClaimInfo(state(f"c{n}")))) for n in range(THREADS)]
                await until(lambda: syncs.inside == 1 and new_files(tmp_path) >= THREADS)
                assert len(cache.cache) == 0
                syncs.open()
                await asyncio.gather(*puts)
            assert len(cache.cache) == THREADS

    asyncio.run(main())


def test_changes_of_a_claim_keep_the_order_of_their_awaits(tmp_path: Path) -> None:
    async def main() -> bool:
        async with await opened(tmp_path) as cache:
            await asyncio.gather(
                cache.put(ClaimInfo(state("a"))),
                cache.delete("a"),
                cache.put(ClaimInfo(state("a", "p"))),
                cache.delete("a"),
            )
            return "a" in cache.cache

    assert asyncio.run(main()) is False


def test_a_pod_is_unprepared_after_the_prepare_that_was_awaited_before(tmp_path: Path) -> None:
    async def main() -> list[str]:
        gpus = Gpus()
        async with await opened(tmp_path) as cache:
            manager = AsyncDRAManager(DRAManager(cache.cache, {GPU: gpus}), cache.threads)
            preparing = asyncio.create_task(manager.prepare_resources(pod("p", "a")))
            unpreparing = asyncio.create_task(manager.unprepare_resources("p"))
            await until(lambda: gpus.gate.inside == 1)
            gpus.gate.open()
            await asyncio.gather(preparing, unpreparing)
            assert len(cache.cache) == 0
        return gpus.calls

    assert asyncio.run(main()) == ["prepare a", "unprepare a"]


def test_a_cancelled_prepare_is_recorded_before_the_cancellation_is_raised(tmp_path: Path) -> None:
    async def main() -> None:
        gpus = Gpus()
        async with await opened(tmp_path) as cache:
            manager = AsyncDRAManager(DRAManager(cache.cache, {GPU: gpus}), cache.threads)
            preparing = asyncio.create_task(manager.prepare_resources(pod("p", "a")))
            await until(lambda: gpus.gate.inside == 1)
            preparing.cancel()
            await asyncio.sleep(0.01)
            assert not preparing.done()
            gpus.gate.open()
            with pytest.raises(asyncio.CancelledError):
                await preparing
            claim = cache.cache.get("a")
            assert claim is not None
            assert claim.prepared
            await manager.prepare_resources(pod("p", "a"))
            assert gpus.calls == ["prepare a"], "prepared once"
            await manager.unprepare_claim("a")
            assert "a" not in cache.cache

    asyncio.run(main())


def test_a_prepare_that_is_cancelled_while_it_waits_leaves_no_trace(tmp_path: Path) -> None:
    async def main() -> None:
        gpus = Gpus()
        async with await opened(tmp_path) as cache:
            manager = AsyncDRAManager(DRAManager(cache.cache, {GPU: gpus}), cache.threads)
            first = asyncio.create_task(manager.prepare_resources(pod("p", "a")))
            second = asyncio.create_task(manager.prepare_resources(pod("q", "a")))
            await until(lambda: gpus.gate.inside == 1)
            second.cancel()
            gpus.gate.open()
            await asyncio.gather(first, second, return_exceptions=True)
            assert cache.cache.of_pod("q") == ()
            assert len(cache.cache.of_pod("p")) == 1

    asyncio.run(main())


def test_reconcile_unprepares_for_pods_that_are_gone(tmp_path: Path) -> None:
    async def main() -> None:
        gpus = Gpus()
        gpus.gate.open()
        async with await opened(tmp_path) as cache:
            manager = AsyncDRAManager(DRAManager(cache.cache, {GPU: gpus}), cache.threads)
            await asyncio.gather(*(manager.prepare_resources(pod(f"p{n}", f"c{n}")) for n in range(20)))
            await manager.reconcile(["p3"], complete=True)
            assert [claim.uid for claim in cache.cache] == ["c3"]

    asyncio.run(main())


def test_errors_come_through(tmp_path: Path) -> None:
    async def main() -> None:
        async with await opened(tmp_path) as cache:
            manager = AsyncDRAManager(DRAManager(cache.cache, {}), cache.threads)
            with pytest.raises(ClaimInvalid, match="not registered"):
                await manager.prepare_resources(pod("p", "a"))

    asyncio.run(main())


@pytest.mark.parametrize("delay", [0, 0.001, 0.003, 0.01])
def test_a_cancelled_open_gives_the_directory_back(tmp_path: Path, delay: float) -> None:
    async def main() -> None:
        opening = asyncio.create_task(opened(tmp_path))
        await asyncio.sleep(delay)
        opening.cancel()
        made = (await asyncio.gather(opening, return_exceptions=True))[0]
        if isinstance(made, AsyncClaimInfoCache):
            await made.close()
        async with await opened(tmp_path):
            pass

    asyncio.run(main())
