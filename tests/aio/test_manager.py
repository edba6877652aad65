"""The AsyncCheckpointManager on a real disk."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CorruptCheckpoint,
    DirectoryLocked,
    InvalidKey,
    ManagerClosed,
    MemoryStore,
    Outcome,
    PlanOutdated,
    Schema,
    TransactionFailed,
)
from checkpointmanager.aio import AsyncCheckpointManager
from checkpointmanager.testing import damage

from .gates import held_syncs, until


@dataclass
class Lease:
    holder: str
    count: int = 0


LEASES = Schema("Lease", version=1, type=Lease)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "leases"


def test_every_verb_does_what_it_does_without_a_loop(directory: Path) -> None:
    async def main() -> None:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            assert (await manager.create_checkpoint("a", Lease("x"))).generation == 1
            assert (await manager.create_checkpoint("a", Lease("x"))).unchanged
            assert (await manager.update_checkpoint("a", lambda lease: Lease(lease.holder, 1))).data == Lease("x", 1)
            assert (await manager.get_checkpoint("a")).data == Lease("x", 1)
            before = await manager.previous_checkpoint("a")
            assert before is not None
            assert before.data == Lease("x")
            async with manager.batch() as batch:
                batch.create_checkpoint("b", Lease("y"))
                batch.create_checkpoint("c", Lease("z"))
                batch.remove_checkpoint("a")
                assert len(batch) == 3
            assert set(batch.written) == {"b", "c"}
            assert await manager.list_checkpoints() == ["b", "c"]
            assert set((await manager.load()).checkpoints) == {"b", "c"}
            assert (await manager.verify()).intact == 2
            assert (await manager.recover_checkpoint("b")).outcome is Outcome.INTACT
            await manager.remove_checkpoint("b")
            with pytest.raises(CheckpointNotFound):
                await manager.get_checkpoint("b")

    asyncio.run(main())


def test_a_default_replaces_a_missing_checkpoint(directory: Path) -> None:
    async def main() -> None:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            assert await manager.get_checkpoint("a", None) is None
            with pytest.raises(CheckpointNotFound):
                await manager.update_checkpoint("a", lambda lease: lease)
            created = await manager.update_checkpoint("a", lambda lease: Lease(lease.holder, 1), Lease("x"))
            assert created.data == Lease("x", 1)
            found = await manager.get_checkpoint("a", None)
            assert found is not None
            assert found.data == Lease("x", 1)

    asyncio.run(main())


def test_a_load_repairs_damage_if_asked(directory: Path) -> None:
    async def main() -> None:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            await manager.create_checkpoint("a", Lease("x"))
            damage.flip_bit(directory, "a")
            assert (await manager.load()).problems.keys() == {"a"}
            loaded = await manager.load(repair=True)
            assert loaded.checkpoints["a"].data == Lease("x")
            assert loaded.recoveries["a"].outcome is Outcome.REPAIRED

    asyncio.run(main())


def test_a_recovery_is_planned_and_then_applied(directory: Path) -> None:
    async def main() -> None:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            await manager.create_checkpoint("a", Lease("x"))
            await manager.create_checkpoint("b", Lease("y"))
            damage.flip_bit(directory, "a")
            (directory / "b.json").write_bytes(b"")
            plan = await manager.plan_recovery("a")
            assert (plan.outcome, plan.exact, plan.lost) == (Outcome.REPAIRED, True, "nothing")
            assert (await plan.apply()).outcome is Outcome.REPAIRED
            assert (await manager.get_checkpoint("a")).data == Lease("x")
            with pytest.raises(PlanOutdated):
                await plan.apply()
            hopeless = await manager.plan_recovery("b")
            assert (await hopeless.apply(rollback=True)).outcome is Outcome.HOPELESS
            assert (await hopeless.apply(discard=True)).outcome is Outcome.DISCARDED
            assert await manager.list_checkpoints() == ["a"]

    asyncio.run(main())


def test_a_batch_whose_block_raises_writes_nothing(directory: Path) -> None:
    async def main() -> list[str]:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            with pytest.raises(ZeroDivisionError):
                async with manager.batch() as batch:
                    batch.create_checkpoint("a", Lease("x"))
                    raise ZeroDivisionError
            return await manager.list_checkpoints()

    assert asyncio.run(main()) == []


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


def test_a_store_may_replace_the_directory_and_any_json_the_schema() -> None:
    async def main() -> object:
        async with AsyncCheckpointManager(MemoryStore()) as manager:
            await manager.create_checkpoint("a", {"x": [1]})
            return (await manager.get_checkpoint("a")).data

    assert asyncio.run(main()) == {"x": [1]}


def test_a_hundred_concurrent_writes_overlap_their_syncs(directory: Path) -> None:
    async def main() -> int:
        async with AsyncCheckpointManager(directory, LEASES, threads=100) as manager:
            with held_syncs() as syncs:
                writes = [asyncio.create_task(manager.create_checkpoint(f"k{n}", Lease("x"))) for n in range(100)]
                await until(lambda: syncs.inside == 100)
                syncs.open()
                await asyncio.gather(*writes)
            return syncs.most

    assert asyncio.run(main()) == 100


def test_the_loop_goes_on_while_the_disk_does_not(directory: Path) -> None:
    async def main() -> int:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            with held_syncs() as syncs:
                write = asyncio.create_task(manager.create_checkpoint("a", Lease("x")))
                await until(lambda: syncs.inside == 1)
                steps = 0
                for _ in range(100):
                    await asyncio.sleep(0)
                    steps += not write.done()
                syncs.open()
                await write
            return steps

    assert asyncio.run(main()) == 100


def test_writes_of_one_key_take_effect_in_the_order_of_their_awaits(directory: Path) -> None:
    async def main() -> tuple[int, list[int]]:
        seen: list[int] = []
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            await manager.create_checkpoint("a", Lease("x"))

            def counted(n: int) -> object:
                def change(lease: Lease) -> Lease:
                    seen.append(n)
                    return Lease(lease.holder, lease.count + 1)

                return manager.update_checkpoint("a", change)

            await asyncio.gather(*(counted(n) for n in range(50)))  # type: ignore[call-overload]
            return (await manager.get_checkpoint("a")).data.count, seen

    assert asyncio.run(main()) == (50, list(range(50)))


def test_a_batch_keeps_its_place_in_the_order_of_its_keys(directory: Path) -> None:
    async def main() -> tuple[str, str]:
        async with AsyncCheckpointManager(directory, LEASES) as manager:

            async def batched() -> None:
                async with manager.batch() as batch:
                    batch.create_checkpoint("a", Lease("batch"))
                    batch.create_checkpoint("b", Lease("batch"))

            await asyncio.gather(
                manager.create_checkpoint("a", Lease("first")), batched(), manager.create_checkpoint("b", Lease("last"))
            )
            return (await manager.get_checkpoint("a")).data.holder, (await manager.get_checkpoint("b")).data.holder

    assert asyncio.run(main()) == ("batch", "last")


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
            assert plain.get_checkpoint("a").data.count == 2

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
            started = time.monotonic()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert time.monotonic() - started < 5
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


def test_errors_are_those_of_the_plain_manager(directory: Path) -> None:
    async def main() -> None:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            with pytest.raises(InvalidKey):
                await manager.create_checkpoint("../a", Lease("x"))
            await manager.create_checkpoint("a", Lease("x"))
            (directory / "a.json").write_bytes(b"")
            with pytest.raises(CorruptCheckpoint):
                await manager.get_checkpoint("a")

    asyncio.run(main())
