"""Transactions and batches through AsyncCheckpointManager.run, on a real disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, InvalidKey, TransactionFailed
from checkpointmanager.aio import AsyncCheckpointManager

from .leases import LEASES, Lease


def test_a_transaction_that_fails_or_whose_work_raises_changes_nothing(directory: Path) -> None:
    def broken(plain: CheckpointManager[Lease]) -> None:
        with plain.transaction() as transaction:
            transaction.create_checkpoint("a", Lease("x"))
            raise ZeroDivisionError

    def impossible(plain: CheckpointManager[Lease]) -> None:
        with plain.transaction() as transaction:
            transaction.create_checkpoint("a", Lease("x"))
            transaction.update_checkpoint("b", lambda lease: lease)

    async def main() -> list[str]:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            with pytest.raises(ZeroDivisionError):
                await manager.run("ab", broken)
            with pytest.raises(TransactionFailed):
                await manager.run("ab", impossible)
            with pytest.raises(InvalidKey):
                await manager.run([""], broken)
            return await manager.list_checkpoints()

    assert asyncio.run(main()) == []


def test_work_keeps_its_place_in_the_order_of_its_keys(directory: Path) -> None:
    async def main() -> str:
        async with AsyncCheckpointManager(directory, LEASES) as manager:

            def add(letter: str, plain: CheckpointManager[Lease]) -> None:
                with plain.transaction() as transaction:
                    for key in "ab":
                        transaction.update_checkpoint(key, lambda lease: Lease(lease.holder + letter), Lease(""))

            await asyncio.gather(
                *(manager.run("ab", lambda plain, letter=letter: add(letter, plain)) for letter in "12345")  # type: ignore[misc]
            )
            found = {(await manager.get_checkpoint(key)).data.holder for key in "ab"}
            assert len(found) == 1
            return found.pop()

    assert asyncio.run(main()) == "12345"


def test_work_that_is_cancelled_before_its_turn_changes_nothing(directory: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: Lease) -> Lease:
        begun.set()
        go_on.wait()
        return Lease("first")

    def late(plain: CheckpointManager[Lease]) -> None:
        with plain.transaction() as transaction:
            transaction.create_checkpoint("a", Lease("late"))
            transaction.create_checkpoint("b", Lease("late"))

    async def main() -> str:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            first = asyncio.create_task(manager.update_checkpoint("a", slow, Lease("")))
            await asyncio.to_thread(begun.wait)
            second = asyncio.create_task(manager.run("ab", late))
            await asyncio.sleep(0.02)  # time enough for work that does not wait for its turn
            second.cancel()
            go_on.set()
            await asyncio.gather(first, second, return_exceptions=True)
            assert await manager.list_checkpoints() == ["a"]
            return (await manager.get_checkpoint("a")).data.holder

    assert asyncio.run(main()) == "first"
