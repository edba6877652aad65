"""However a close() is cancelled, the directory is free afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from checkpointmanager import CheckpointCache, CheckpointManager
from checkpointmanager.aio import AsyncCheckpointCache, AsyncCheckpointManager

from .leases import LEASES, Lease

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
