"""Opening and closing the AsyncCheckpointManager and the cache: even if that is cancelled, the directory is free."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointCache,
    CheckpointManager,
    DirectoryLocked,
    ManagerClosed,
)
from checkpointmanager.aio import AsyncCheckpointCache, AsyncCheckpointManager

from ..checkpointmanager.leases import LEASES, Lease
from .gates import LIMIT, held_syncs, until


def test_closing_waits_for_writes_and_refuses_later_calls(directory: Path) -> None:
    async def main() -> None:
        manager = await AsyncCheckpointManager(directory, LEASES).open()
        with held_syncs() as syncs:
            writes = [asyncio.create_task(manager.create_checkpoint("a", Lease("x", n))) for n in range(3)]
            await until(lambda: syncs.inside == 1)
            closing = asyncio.create_task(manager.close())
            await asyncio.sleep(0.01)
            assert not closing.done()
            with pytest.raises(ManagerClosed, match="is closed"):
                await manager.get_checkpoint("a")
            closing.cancel()  # ends the wait, not the closing
            syncs.open()
            await asyncio.gather(*writes)
        await manager.close()
        with CheckpointManager(directory, LEASES) as plain:
            assert plain.get_checkpoint("a").data.seconds == 2

    asyncio.run(main())


def test_before_it_is_opened_nothing_is_touched_and_calls_are_refused(directory: Path) -> None:
    async def main() -> None:
        manager = AsyncCheckpointManager(directory, LEASES)
        with pytest.raises(ManagerClosed, match="not open yet"):
            await manager.list_checkpoints()
        await manager.close()
        assert not os.path.exists(directory)  # noqa: ASYNC240
        await manager.open()
        with pytest.raises(ManagerClosed, match="opened before"):
            await manager.open()
        await manager.close()

    asyncio.run(main())


def test_a_locked_directory_is_refused_at_once_or_after_the_timeout(directory: Path) -> None:
    async def main() -> None:
        with CheckpointManager(directory, LEASES, owner="the other"):
            with pytest.raises(DirectoryLocked, match="the other"):
                await AsyncCheckpointManager(directory, LEASES).open()
            with pytest.raises(DirectoryLocked, match="the other"):
                await AsyncCheckpointManager(directory, LEASES, lock_timeout=0.3).open()

    asyncio.run(main())


def test_opening_waits_for_the_lock_and_can_be_cancelled_meanwhile(directory: Path) -> None:
    async def main() -> None:
        with CheckpointManager(directory, LEASES):
            waiting = asyncio.create_task(AsyncCheckpointManager(directory, LEASES, lock_timeout=3600).open())
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                async with asyncio.timeout(LIMIT):
                    await waiting
            waiting = asyncio.create_task(AsyncCheckpointManager(directory, LEASES, lock_timeout=3600).open())
            await asyncio.sleep(0.05)
        manager = await waiting
        await manager.create_checkpoint("a", Lease("x"))
        await manager.close()

    asyncio.run(main())


@pytest.mark.parametrize("delay", [0, 0.001, 0.002, 0.005, 0.01])
def test_a_cancelled_open_gives_the_directory_back(directory: Path, delay: float) -> None:
    async def main() -> None:
        opening = asyncio.create_task(AsyncCheckpointManager(directory, LEASES).open())
        await asyncio.sleep(delay)
        opening.cancel()
        opened = (await asyncio.gather(opening, return_exceptions=True))[0]
        if isinstance(opened, AsyncCheckpointManager):
            await opened.close()
        with CheckpointManager(directory, LEASES):
            pass

    asyncio.run(main())


Closing = Callable[[], Awaitable[None]]


async def opened_manager(directory: Path) -> Closing:
    manager = await AsyncCheckpointManager(directory, LEASES).open()
    await manager.create_checkpoint("a", Lease("x"))
    return manager.close


async def opened_cache(directory: Path) -> Closing:
    cache = await AsyncCheckpointCache.open(lambda: CheckpointCache(directory, LEASES))
    await cache.put("a", Lease("x"))
    return cache.close


@pytest.mark.parametrize("steps", range(1, 9))
@pytest.mark.parametrize("opened", [opened_manager, opened_cache])
def test_an_event_loop_that_ends_after_any_step_of_a_close_leaves_nothing_locked(
    directory: Path, opened: Callable[[Path], Awaitable[Closing]], steps: int
) -> None:
    kept: list[Closing] = []  # so that no finalizer does what close() must do

    async def main() -> None:
        close = await opened(directory)
        kept.append(close)
        closing = asyncio.ensure_future(close())
        for _ in range(steps):
            await asyncio.sleep(0)
        if steps % 2:
            closing.cancel()

    asyncio.run(main())  # cancels every task that is left
    with CheckpointManager(directory, LEASES) as plain:
        assert plain.get_checkpoint("a").data == Lease("x")


@pytest.mark.parametrize("steps", range(1, 9))
@pytest.mark.parametrize("opened", [opened_manager, opened_cache])
def test_a_close_that_is_cancelled_after_any_step_can_be_awaited_again(
    directory: Path, opened: Callable[[Path], Awaitable[Closing]], steps: int
) -> None:
    async def main() -> None:
        close = await opened(directory)
        closing = asyncio.ensure_future(close())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await close()
        CheckpointManager(directory, LEASES).close()

    asyncio.run(main())
