"""The AsyncCheckpointManager on a real disk: every verb, transactions, order, and calls that are cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CorruptCheckpoint,
    InvalidKey,
    MemoryStore,
    Outcome,
)
from checkpointmanager.aio import AsyncCheckpointManager
from checkpointmanager.testing import damage

from ..checkpointmanager.leases import LEASES, Lease
from .gates import held_syncs, until


def test_every_verb_does_what_it_does_without_a_loop(directory: Path) -> None:
    def replace(plain: CheckpointManager[Lease]) -> set[str]:
        with plain.batch() as batch:
            batch.create_checkpoint("b", Lease("y"))
            batch.create_checkpoint("c", Lease("z"))
            batch.remove_checkpoint("a")
        return set(batch.written)

    async def main() -> None:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            assert await manager.get_checkpoint("a", None) is None
            assert (await manager.update_checkpoint("a", lambda lease: lease, Lease("x"))).generation == 1
            assert (await manager.create_checkpoint("a", Lease("x"))).unchanged
            assert (await manager.update_checkpoint("a", lambda lease: Lease(lease.holder, 1))).data == Lease("x", 1)
            assert (await manager.get_checkpoint("a")).data == Lease("x", 1)
            before = await manager.previous_checkpoint("a")
            assert before is not None
            assert before.data == Lease("x")

            assert await manager.run("abc", replace) == {"b", "c"}
            assert await manager.list_checkpoints() == ["b", "c"]
            assert set((await manager.load()).checkpoints) == {"b", "c"}
            assert (await manager.verify()).intact == 2
            await manager.remove_checkpoint("b")
            with pytest.raises(CheckpointNotFound):
                await manager.get_checkpoint("b")
            with pytest.raises(CheckpointNotFound):
                await manager.update_checkpoint("b", lambda lease: lease)
            with pytest.raises(InvalidKey):
                await manager.create_checkpoint("", Lease("x"))
            with pytest.raises(InvalidKey):
                await manager.run([""], replace)
            with pytest.raises(ZeroDivisionError):
                await manager.run("a", lambda _: 1 // 0)

    asyncio.run(main())


def test_damage_is_reported_and_recovered_as_without_a_loop(directory: Path) -> None:
    async def main() -> None:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            for key in "abc":
                await manager.create_checkpoint(key, Lease("x"))
                damage.flip_bit(directory, key)
            (directory / "b.json").write_bytes(b"")
            with pytest.raises(CorruptCheckpoint):
                await manager.get_checkpoint("a")
            assert (await manager.load()).problems.keys() == {*"abc"}
            plan = await manager.plan_recovery("a")
            assert (plan.outcome, plan.exact, plan.lost) == (Outcome.REPAIRED, True, "nothing")
            assert (await manager.run(["a"], lambda _: plan.apply())).outcome is Outcome.REPAIRED
            assert (await manager.recover_checkpoint("a")).outcome is Outcome.INTACT
            loaded = await manager.load(repair=True)
            assert loaded.problems.keys() == {"b"}
            assert loaded.recoveries.keys() == {"c"}
            hopeless = await manager.plan_recovery("b")
            assert (await manager.run(["b"], lambda _: hopeless.apply(discard=True))).outcome is Outcome.DISCARDED
            assert await manager.list_checkpoints() == ["a", "c"]

    asyncio.run(main())


def test_a_store_may_replace_the_directory_and_any_json_the_schema() -> None:
    async def main() -> object:
        async with AsyncCheckpointManager(MemoryStore()) as manager:
            await manager.create_checkpoint("a", {"x": [1]})
            return (await manager.get_checkpoint("a")).data

    assert asyncio.run(main()) == {"x": [1]}


def test_a_hundred_concurrent_writes_share_their_syncs(directory: Path) -> None:
    async def main() -> int:
        async with AsyncCheckpointManager(directory, LEASES, threads=100) as manager:
            await manager.create_checkpoint("first", Lease("x"))
            with held_syncs() as syncs:
                writes = [asyncio.create_task(manager.create_checkpoint(f"k{n}", Lease("x"))) for n in range(100)]
                # Written and not committed; a few wait for another key with the same lock.
                await until(lambda: len(list(directory.glob(".tmp-*"))) > 80)
                syncs.open()
                await asyncio.gather(*writes)
            return syncs.passed

    assert asyncio.run(main()) < 20


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


# Calls that are cancelled or time out


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
