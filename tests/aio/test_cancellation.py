"""Calls of the AsyncCheckpointManager that are cancelled or time out, on a real disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointManager,
)
from checkpointmanager.aio import AsyncCheckpointManager

from .gates import held_syncs, until
from .leases import LEASES, Lease


def test_a_write_whose_waiter_was_cancelled_is_whole_on_disk_when_the_cancellation_is_raised(directory: Path) -> None:
    async def main() -> tuple[bool, str]:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            await manager.create_checkpoint("a", Lease("old"))
            with held_syncs() as syncs:
                write = asyncio.create_task(manager.create_checkpoint("a", Lease("new")))
                await until(lambda: syncs.inside == 1)
                write.cancel()
                await asyncio.sleep(0.01)
                raised_early = write.done()
                syncs.open()
                with pytest.raises(asyncio.CancelledError):
                    await write
            return raised_early, (await manager.get_checkpoint("a")).data.holder

    assert asyncio.run(main()) == (False, "new")


@pytest.mark.parametrize("steps", range(12))
def test_a_cancellation_at_any_step_of_the_loop_leaves_the_old_or_the_new(directory: Path, steps: int) -> None:
    """Cancelled after that many steps of the loop: the manager's memory and the disk agree afterwards."""

    async def main() -> None:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            await manager.create_checkpoint("a", Lease("old"))
            write = asyncio.create_task(manager.create_checkpoint("a", Lease("new")))
            for _ in range(steps):
                await asyncio.sleep(0 if steps < 6 else 0.001)
            write.cancel()
            cancelled = isinstance((await asyncio.gather(write, return_exceptions=True))[0], asyncio.CancelledError)
            holder = (await manager.get_checkpoint("a")).data.holder
            assert holder == "new" or (cancelled and holder == "old")
            again = await manager.create_checkpoint("a", Lease("new"))
            assert again.unchanged == (holder == "new")
        with CheckpointManager(directory, LEASES) as plain:
            assert plain.get_checkpoint("a").data == Lease("new")

    asyncio.run(main())


def test_a_timeout_ends_when_the_write_has(directory: Path) -> None:
    async def main() -> str:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            with held_syncs() as syncs:
                asyncio.get_running_loop().call_later(0.1, syncs.open)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await manager.create_checkpoint("a", Lease("x"))
            return (await manager.get_checkpoint("a")).data.holder

    assert asyncio.run(main()) == "x"
