"""Transactions of the AsyncCheckpointManager, on a real disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from checkpointmanager import (
    TransactionFailed,
)
from checkpointmanager.aio import AsyncCheckpointManager

from .leases import LEASES, Lease


def test_a_transaction_makes_all_its_changes(directory: Path) -> None:
    async def main() -> None:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            await manager.create_checkpoint("a", Lease("x"))
            await manager.create_checkpoint("b", Lease("x"))
            async with manager.transaction() as transaction:
                transaction.update_checkpoint("a", lambda lease: Lease(lease.holder + "y"))
                transaction.remove_checkpoint("b")
                transaction.create_checkpoint("c", Lease("z"))
                assert len(transaction) == 3
            assert {key: found.generation for key, found in transaction.written.items()} == {"a": 2, "c": 1}
            loaded = (await manager.load()).checkpoints
            assert {key: found.data for key, found in loaded.items()} == {"a": Lease("xy"), "c": Lease("z")}

    asyncio.run(main())


def test_a_transaction_that_fails_or_whose_block_raises_changes_nothing(directory: Path) -> None:
    async def main() -> list[str]:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            with pytest.raises(ZeroDivisionError):
                async with manager.transaction() as transaction:
                    transaction.create_checkpoint("a", Lease("x"))
                    transaction.create_checkpoint("b", Lease("x"))
                    raise ZeroDivisionError
            with pytest.raises(TransactionFailed):
                async with manager.transaction() as transaction:
                    transaction.create_checkpoint("a", Lease("x"))
                    transaction.update_checkpoint("b", lambda lease: lease)
            return await manager.list_checkpoints()

    assert asyncio.run(main()) == []


def test_transactions_keep_their_place_in_the_order_of_their_keys(directory: Path) -> None:
    async def main() -> str:
        async with AsyncCheckpointManager(directory, LEASES) as manager:

            async def add(letter: str) -> None:
                async with manager.transaction() as transaction:
                    for key in "ab":
                        transaction.update_checkpoint(key, lambda lease: Lease(lease.holder + letter), Lease(""))

            await asyncio.gather(*map(add, "12345"))
            found = {(await manager.get_checkpoint(key)).data.holder for key in "ab"}
            assert len(found) == 1
            return found.pop()

    assert asyncio.run(main()) == "12345"


def test_a_transaction_that_is_cancelled_before_its_turn_changes_nothing(directory: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: Lease) -> Lease:
        begun.set()
        go_on.wait()
        return Lease("first")

    async def main() -> str:
        async with AsyncCheckpointManager(directory, LEASES) as manager:

            async def late() -> None:
                async with manager.transaction() as transaction:
                    transaction.create_checkpoint("a", Lease("late"))
                    transaction.create_checkpoint("b", Lease("late"))

            first = asyncio.create_task(manager.update_checkpoint("a", slow, Lease("")))
            await asyncio.to_thread(begun.wait)
            second = asyncio.create_task(late())
            await asyncio.sleep(0.02)  # time enough for a transaction that does not wait for its turn
            second.cancel()
            go_on.set()
            await asyncio.gather(first, second, return_exceptions=True)
            assert await manager.list_checkpoints() == ["a"]
            return (await manager.get_checkpoint("a")).data.holder

    assert asyncio.run(main()) == "first"
