"""The AsyncCheckpointManager on a real disk."""

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
    PlanOutdated,
)
from checkpointmanager.aio import AsyncCheckpointManager
from checkpointmanager.testing import damage

from .gates import held_syncs, until
from .leases import LEASES, Lease


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

            def replace(plain: CheckpointManager[Lease]) -> set[str]:
                with plain.batch() as batch:
                    batch.create_checkpoint("b", Lease("y"))
                    batch.create_checkpoint("c", Lease("z"))
                    batch.remove_checkpoint("a")
                return set(batch.written)

            assert await manager.run("abc", replace) == {"b", "c"}
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
            assert (await manager.run(["a"], lambda _: plan.apply())).outcome is Outcome.REPAIRED
            assert (await manager.get_checkpoint("a")).data == Lease("x")
            with pytest.raises(PlanOutdated):
                await manager.run(["a"], lambda _: plan.apply())
            hopeless = await manager.plan_recovery("b")
            recovery = await manager.run(["b"], lambda _: hopeless.apply(discard=True))
            assert recovery.outcome is Outcome.DISCARDED
            assert await manager.list_checkpoints() == ["a"]

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


def test_errors_are_those_of_the_plain_manager(directory: Path) -> None:
    async def main() -> None:
        async with AsyncCheckpointManager(directory, LEASES) as manager:
            with pytest.raises(InvalidKey):
                await manager.create_checkpoint("", Lease("x"))
            await manager.create_checkpoint("a", Lease("x"))
            (directory / "a.json").write_bytes(b"")
            with pytest.raises(CorruptCheckpoint):
                await manager.get_checkpoint("a")

    asyncio.run(main())
