"""The ClaimPreparer on an event loop: order, cancellation, and a slow API server that delays no other claim."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from checkpointmanager.aio import KeyedThreads
from draState.aio import AsyncClaimPreparer

from ..draState.driverside import DriverNode, names


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[tuple[DriverNode, AsyncClaimPreparer]]:
    node = DriverNode(tmp_path / "claims", look_up_seconds=20.0)
    threads = KeyedThreads()
    preparer = AsyncClaimPreparer(node.preparer, threads)
    await preparer.restore()
    try:
        yield node, preparer
    finally:
        if node.server.hanging:
            node.server.hanging.set()
        await threads.close()
        node.stop()


def test_calls_of_one_claim_come_in_their_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (node, preparer):
            ref = node.server.allocate("a", "gpu-0")
            first, gone, last = await asyncio.gather(
                preparer.prepare([ref]), preparer.unprepare([ref]), preparer.prepare([ref])
            )
            assert names(first["a"]) == names(last["a"]) == ["gpu-0"]
            assert gone == {"a": ""}
            hooks = [hook for hook, _ in node.hardware.calls]
            assert hooks == ["set_up", "tear_down", "set_up"]

    asyncio.run(main())


def test_a_prepare_that_is_cancelled_before_it_began_is_not_carried_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (node, preparer):
            ref = node.server.allocate("a", "gpu-0")
            node.server.hanging = threading.Event()
            waiting = asyncio.create_task(preparer.prepare([ref]))  # looks up the allocation
            behind = asyncio.create_task(preparer.prepare([ref]))  # waits for its turn
            await asyncio.sleep(0.01)
            for call in (behind, waiting):
                call.cancel()
            await asyncio.gather(waiting, behind, return_exceptions=True)
            assert await preparer.unprepare([ref]) == {"a": ""}
            node.server.hanging.set()
            await asyncio.sleep(0.01)
            assert (len(node.cache), node.hardware.calls) == (0, [])

    asyncio.run(main())


def test_while_the_api_server_hangs_others_are_unprepared_and_released(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (node, preparer):
            known = [node.server.allocate(uid, f"gpu-{uid}") for uid in "ab"]
            assert all(names(answer) for answer in (await preparer.prepare(known)).values())
            node.server.hanging = threading.Event()
            new = [node.server.allocate(f"new-{n}", f"other-{n}") for n in range(40)]
            waiting = asyncio.create_task(preparer.prepare(new))
            await asyncio.sleep(0.01)
            assert await preparer.unprepare([known[0]]) == {"a": ""}
            assert await preparer.release("b", force=True) == ""
            assert not waiting.done()
            node.server.hanging.set()
            assert all(names(answer) for answer in (await waiting).values())

    asyncio.run(main())


def test_orphans_are_found(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (node, preparer):
            await preparer.prepare([node.server.allocate("a", "gpu-0")])
            node.server.claims.clear()
            assert list(await preparer.review()) == ["a"]

    asyncio.run(main())


def test_a_caller_whose_deadline_has_passed_gets_nothing_done(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (node, preparer):
            answers = await preparer.prepare([node.server.allocate("a", "gpu-0")], deadline=0.0)
            assert "deadline passed" in answers["a"].error
            assert len(node.cache) == 0

    asyncio.run(main())
