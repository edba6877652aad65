"""retain() removes what is no longer alive, and brakes when the view of what is alive looks wrong."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from checkpoint_verify.cli import main
from checkpointmanager import (
    CheckpointCache,
    CheckpointManager,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    Event,
    MemoryStore,
    RetainRefused,
    Schema,
)
from checkpointmanager.aio import AsyncCheckpointCache
from checkpointmanager.testing import damage, failing

from ..leases import LEASES, NEW, OLD, Lease

LeaseCache = CheckpointCache[Lease]


def filled(directory: Path, number: int) -> LeaseCache:
    cache = CheckpointCache(directory, LEASES)
    cache.change(keys(number), lambda _: dict.fromkeys(keys(number), OLD), independent=True)
    return cache


def keys(number: int) -> list[str]:
    return [f"k{n}" for n in range(number)]


def copies(directory: Path, reason: str = "retired") -> list[str]:
    return sorted(path.name.split(".")[0] for path in directory.glob(f".quarantine/*.{reason}.json"))


def test_it_removes_what_is_not_alive_and_keeps_a_copy(directory: Path) -> None:
    with filled(directory, 6) as cache:
        assert list(cache.retain(lambda: ["k0", "k1", "k2", "k3", "other"], complete=True)) == ["k4", "k5"]
        assert sorted(cache) == keys(4)
    assert copies(directory) == ["k4", "k5"]
    with CheckpointCache(directory, LEASES) as cache:
        assert sorted(cache) == keys(4)


def test_an_incomplete_view_removes_nothing_and_is_not_asked_for(directory: Path) -> None:
    def list_live() -> Iterable[str]:
        pytest.fail("it may be incomplete")

    with filled(directory, 2) as cache:
        with pytest.raises(RetainRefused, match=re.escape(f"{directory}: the view")) as refused:
            cache.retain(list_live, complete=False)
        assert refused.value.keys == ()
        assert len(cache) == 2


@pytest.mark.parametrize(("alive", "at_most", "allowed"), [(5, 0.5, True), (4, 0.5, False), (10, 0.0, True)])
def test_more_than_a_share_is_refused_with_the_keys(directory: Path, alive: int, at_most: float, allowed: bool) -> None:
    with filled(directory, 10) as cache:
        if allowed:
            assert len(cache.retain(lambda: keys(alive), complete=True, at_most=at_most)) == 10 - alive
            return
        with pytest.raises(RetainRefused, match="6 of 10 keys would be removed") as refused:
            cache.retain(lambda: keys(alive), complete=True, at_most=at_most)
        assert refused.value.keys == tuple(keys(10)[alive:])
        assert len(cache) == 10
    assert copies(directory) == []


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_three_entries_may_always_go(directory: Path, number: int) -> None:
    with filled(directory, number) as cache:
        if number > 3:
            with pytest.raises(RetainRefused):
                cache.retain(list, complete=True, at_most=0)
        else:
            assert list(cache.retain(list, complete=True, at_most=0)) == keys(number)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(directory: Path, share: float) -> None:
    with filled(directory, 1) as cache, pytest.raises(ValueError, match="at_most must be a share"):
        cache.retain(list, complete=True, at_most=share)


def test_what_was_written_since_the_list_was_asked_for_is_spared(directory: Path) -> None:
    with filled(directory, 3) as cache:

        def list_live() -> list[str]:
            cache.put("new", NEW)
            cache.put("k1", NEW)  # granted again, after the list was made
            return ["k0"]

        assert list(cache.retain(list_live, complete=True)) == ["k2"]
        assert sorted(cache) == ["k0", "k1", "new"]


def test_if_the_copy_cannot_be_made_nothing_is_removed(directory: Path) -> None:
    with filled(directory, 3) as cache:
        with failing(directory, "mkdir", errno.ENOSPC), pytest.raises(CheckpointWriteFailed):
            cache.retain(list, complete=True)
        assert sorted(cache) == keys(3)
        assert list(cache.retain(list, complete=True)) == keys(3)
    assert copies(directory) == keys(3)


def test_damaged_entries_go_with_the_reason_of_their_damage(directory: Path) -> None:
    filled(directory, 2).close()
    damage.truncate(directory, "k0")
    with CheckpointCache(directory, LEASES) as cache:
        assert isinstance(cache.problems["k0"], CorruptCheckpoint)
        assert list(cache.retain(list, complete=True)) == keys(2)
    assert copies(directory) == ["k1"]
    assert copies(directory, "truncated") == ["k0"]


def test_nothing_is_reported_as_damage(directory: Path) -> None:
    events: list[Event] = []
    with CheckpointCache(CheckpointManager(directory, LEASES, on_event=events.append)) as cache:
        cache.put("a", OLD)
        cache.retain(list, complete=True)
    assert events == []


def test_a_retired_entry_is_listed_and_restored_by_checkpoint_verify(
    real_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with filled(real_directory, 3) as cache:
        cache.retain(lambda: ["k0", "k1"], complete=True)
    assert main(["quarantine", "list", str(real_directory)]) == 0
    assert "retired" in capsys.readouterr().out
    (copy,) = real_directory.glob(".quarantine/*.retired.json")
    assert main(["restore", "--yes", "-d", str(real_directory), "k2", str(copy)]) == 0
    with CheckpointCache(real_directory, LEASES) as cache:
        assert cache["k2"] == OLD


def test_a_store_in_memory_and_asyncio_have_it_too() -> None:
    async def work() -> None:
        store = MemoryStore()
        async with await AsyncCheckpointCache.open(lambda: CheckpointCache(store, Schema("Lease"))) as cache:
            await cache.put("a", 1)
            await cache.put("b", 2)
            assert list(await cache.retain(lambda: ["a"], complete=True)) == ["b"]
            assert list(cache.cache) == ["a"]
        assert list(store.quarantined()) == ["b"]

    asyncio.run(work())
