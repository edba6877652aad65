"""The CheckpointCache for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from checkpointmanager import REMOVED, CheckpointCache, CheckpointManager
from checkpointmanager.aio import AsyncCheckpointCache, KeyedThreads

from ..checkpointmanager.leases import LEASES, Lease
from .gates import Gate, held_syncs, new_files, until

R = TypeVar("R")


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
