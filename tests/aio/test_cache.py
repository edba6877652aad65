"""The CheckpointCache for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from checkpointmanager import REMOVED, CheckpointCache, CheckpointManager, ManagerClosed, Schema
from checkpointmanager.aio import AsyncCheckpointCache, KeyedThreads, KeyedThreadsClosed

from .gates import Gate, held_syncs, new_files, until

R = TypeVar("R")


@dataclass
class Lease:
    holder: str


LEASES = Schema("Lease", version=1, type=Lease)


def made(directory: Path) -> CheckpointCache[Lease]:
    return CheckpointCache(CheckpointManager(directory, LEASES))


async def opened(directory: Path) -> AsyncCheckpointCache[Lease]:
    return await AsyncCheckpointCache.open(lambda: made(directory))


def test_values_are_put_changed_and_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with await opened(tmp_path) as leases:
            await leases.put("a", Lease("x"))
            await leases.put("b", Lease("x"))
            await leases.change(["a", "b", "c"], lambda known: {"a": REMOVED, "c": known["b"].value or Lease("?")})
            await leases.delete("b")
            assert {key: leases.cache[key] for key in leases.cache} == {"c": Lease("x")}
            await leases.close()
        with made(tmp_path) as again:
            assert again["c"] == Lease("x")

    asyncio.run(main())


def test_a_lone_key_is_not_taken_for_its_characters(tmp_path: Path) -> None:
    async def main() -> None:
        async with await opened(tmp_path) as leases:
            with pytest.raises(TypeError, match=r"a list of keys: write \['pod-7'\]"):
                await leases.change("pod-7", lambda _: {"p": Lease("x")})

    asyncio.run(main())


def test_the_loop_goes_on_while_the_disk_works_and_readers_see_only_what_is_durable(tmp_path: Path) -> None:
    async def main() -> None:
        async with await opened(tmp_path) as leases:
            with held_syncs() as syncs:
                puts = [asyncio.create_task(leases.put(f"k{n}", Lease("x"))) for n in range(4)]
                await until(lambda: syncs.inside == 1 and new_files(tmp_path) >= 4)
                assert len(leases.cache) == 0
                syncs.open()
                await asyncio.gather(*puts)
            assert len(leases.cache) == 4

    asyncio.run(main())


def test_changes_of_a_key_keep_the_order_of_their_awaits(tmp_path: Path) -> None:
    async def main() -> Lease:
        async with await opened(tmp_path) as leases:
            await asyncio.gather(*(leases.put("a", Lease(str(n))) for n in range(20)))
            return leases.cache["a"]

    assert asyncio.run(main()) == Lease("19")


def test_a_cancelled_open_leaves_the_directory_free(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()

        def slow() -> CheckpointCache[Lease]:
            cache = made(tmp_path)
            gate()
            return cache

        opening = asyncio.create_task(AsyncCheckpointCache.open(slow))
        await until(lambda: gate.inside == 1)
        opening.cancel()
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await opening
        made(tmp_path).close()

    asyncio.run(main())


def test_closing_waits_for_what_was_awaited_before_and_refuses_what_comes_after(tmp_path: Path) -> None:
    async def main() -> None:
        leases = await opened(tmp_path)
        with held_syncs() as syncs:
            put = asyncio.create_task(leases.put("a", Lease("x")))
            await until(lambda: syncs.inside == 1)
            closing = asyncio.create_task(leases.close())
            await asyncio.sleep(0)  # it starts a task of its own
            await asyncio.sleep(0)
            with pytest.raises(KeyedThreadsClosed):
                await leases.put("b", Lease("x"))
            assert not closing.done()
            syncs.open()
            await asyncio.gather(put, closing)
        assert leases.cache["a"] == Lease("x")
        with pytest.raises(ManagerClosed):
            leases.cache.put("a", Lease("y"))

    asyncio.run(main())


def test_a_hundred_concurrent_writes_share_their_syncs(tmp_path: Path) -> None:
    async def main() -> int:
        threads = KeyedThreads(100)
        async with await AsyncCheckpointCache.open(lambda: made(tmp_path), threads) as leases:
            await leases.put("first", Lease("x"))
            with held_syncs() as syncs:
                puts = [asyncio.create_task(leases.put(f"k{n}", Lease("x"))) for n in range(100)]
                # Written and not committed; a few wait for another key with the same lock.
                await until(lambda: new_files(tmp_path) > 80)
                syncs.open()
                await asyncio.gather(*puts)
            return syncs.passed

    assert asyncio.run(main()) < 20


@pytest.mark.parametrize("steps", range(12))
def test_a_cancellation_at_any_step_of_the_loop_leaves_the_old_or_the_new(tmp_path: Path, steps: int) -> None:
    async def main() -> Lease:
        async with await opened(tmp_path) as leases:
            await leases.put("a", Lease("old"))
            put = asyncio.create_task(leases.put("a", Lease("new")))
            for _ in range(steps):
                await asyncio.sleep(0 if steps < 6 else 0.001)
            put.cancel()
            cancelled = isinstance((await asyncio.gather(put, return_exceptions=True))[0], asyncio.CancelledError)
            found = leases.cache["a"]
            assert found == Lease("new") or (cancelled and found == Lease("old"))
            return found

    in_memory = asyncio.run(main())
    with made(tmp_path) as again:
        assert again["a"] == in_memory


def test_a_timeout_ends_when_the_write_has(tmp_path: Path) -> None:
    async def main() -> Lease:
        async with await opened(tmp_path) as leases:
            with held_syncs() as syncs:
                asyncio.get_running_loop().call_later(0.1, syncs.open)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await leases.put("a", Lease("x"))
            return leases.cache["a"]

    assert asyncio.run(main()) == Lease("x")


class Held(KeyedThreads):
    """Whose next call gets no thread until `free` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.free.set()

    async def call(self, call: Callable[[], R]) -> R:
        await self.free.wait()
        return await super().call(call)


def test_a_close_that_is_cancelled_before_its_thread_starts_still_closes(tmp_path: Path) -> None:
    async def main() -> None:
        threads = Held()
        leases = await AsyncCheckpointCache.open(lambda: made(tmp_path), threads)
        threads.free.clear()
        closing = asyncio.create_task(leases.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        threads.free.set()
        await leases.close()
        made(tmp_path).close()

    asyncio.run(main())


def test_a_loop_that_ends_before_the_thread_starts_leaves_the_directory_free(tmp_path: Path) -> None:
    async def main() -> AsyncCheckpointCache[Lease]:
        threads = Held()
        leases = await AsyncCheckpointCache.open(lambda: made(tmp_path), threads)
        threads.free.clear()
        closing.append(asyncio.create_task(leases.close()))
        await asyncio.sleep(0)
        return leases

    closing: list[asyncio.Task[None]] = []
    leases = asyncio.run(main())  # still referenced: an object that is gone has no lock either
    assert closing[0].cancelled()
    made(tmp_path).close()
    assert len(leases.cache) == 0


@pytest.mark.parametrize("steps", range(1, 9))
def test_an_event_loop_that_ends_after_any_step_of_a_close_leaves_nothing_locked(tmp_path: Path, steps: int) -> None:
    kept: list[AsyncCheckpointCache[Lease]] = []  # so that no finalizer does what close() must do

    async def main() -> None:
        kept.append(await opened(tmp_path))
        await kept[0].put("a", Lease("x"))
        closing = asyncio.create_task(kept[0].close())
        for _ in range(steps):
            await asyncio.sleep(0)
        if steps % 2:
            closing.cancel()

    asyncio.run(main())  # cancels every task that is left
    with made(tmp_path) as again:
        assert again["a"] == Lease("x")


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_close_that_is_cancelled_after_any_step_can_be_awaited_again(tmp_path: Path, steps: int) -> None:
    async def main() -> None:
        leases = await opened(tmp_path)
        closing = asyncio.create_task(leases.close())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await leases.close()
        made(tmp_path).close()

    asyncio.run(main())


def test_several_caches_may_share_the_threads(tmp_path: Path) -> None:
    async def main() -> set[str]:
        threads = KeyedThreads(1, name="shared")
        seen: set[str] = set()

        def make() -> CheckpointCache[Lease]:
            seen.add(threading.current_thread().name)
            return made(tmp_path)

        leases = await AsyncCheckpointCache.open(make, threads)
        await leases.close()
        return seen

    (name,) = asyncio.run(main())
    assert name.startswith("shared")
