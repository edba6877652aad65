"""The cache: rebuilt from its manager, read from memory, written to disk first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    REMOVED,
    BatchFailed,
    CacheEntry,
    CheckpointCache,
    CheckpointManager,
    FileStore,
    InvalidKey,
    ManagerClosed,
    MemoryStore,
    TransactionFailed,
    UnstorableValue,
)

from ..leases import BOOT, LEASES, NEW, OLD, Lease
from ..processes import LIMIT

LeaseCache = CheckpointCache[Lease]


def opened(place: Path | MemoryStore) -> LeaseCache:
    return CheckpointCache(CheckpointManager(place, LEASES, boot_id=BOOT))


@pytest.fixture
def cache(directory: Path) -> Iterator[LeaseCache]:
    with opened(directory) as cache:
        yield cache


def on_disk(directory: Path) -> dict[str, Lease]:
    with CheckpointManager(directory, LEASES, read_only=True) as manager:
        return {key: checkpoint.data for key, checkpoint in manager.load().checkpoints.items()}


@pytest.mark.parametrize("kind", ["files on pyfakefs", "files on disk", "memory"])
def test_it_is_rebuilt_from_what_was_put(kind: str, request: pytest.FixtureRequest) -> None:
    place: Path | MemoryStore = MemoryStore()
    if kind != "memory":
        place = request.getfixturevalue("directory" if "pyfakefs" in kind else "real_directory")
    with opened(place) as cache:
        cache.put("a", OLD)
        cache.put("b", OLD)
        cache.put("a", NEW)
        cache.delete("b")

    with opened(place) as again:
        assert again.entries() == [CacheEntry("a", NEW, 2, True)]
        assert not again.recoveries


def test_reads_touch_no_disk(cache: LeaseCache, directory: Path) -> None:
    cache.put("a", OLD)
    (directory / "a.json").unlink()

    assert cache["a"] == OLD
    assert cache.entries() == [CacheEntry("a", OLD, 1, True)]


def test_a_change_sees_the_current_entries_and_writes_what_it_returns(cache: LeaseCache, directory: Path) -> None:
    cache.put("a", OLD)
    cache.put("b", OLD)
    seen: list[Mapping[str, CacheEntry[Lease]]] = []

    def change(entries: Mapping[str, CacheEntry[Lease]]) -> dict[str, Lease]:
        seen.append(entries)
        return {"a": replace(OLD, seconds=7), "c": NEW}

    cache.change(["a", "b", "c"], change)

    assert seen == [{"a": CacheEntry("a", OLD, 1, True), "b": CacheEntry("b", OLD, 1, True)}]
    assert on_disk(directory) == {"a": replace(OLD, seconds=7), "b": OLD, "c": NEW}
    assert [(entry.key, entry.generation) for entry in cache.entries()] == [("a", 2), ("b", 1), ("c", 1)]


def test_a_change_may_remove_as_well(cache: LeaseCache, directory: Path) -> None:
    cache.put("a", OLD)

    cache.change(["a", "b"], lambda _: {"a": REMOVED, "b": NEW})

    assert on_disk(directory) == {"b": NEW}
    assert list(cache) == ["b"]


def test_a_change_that_returns_nothing_writes_nothing(cache: LeaseCache, directory: Path) -> None:
    cache.put("a", OLD)
    before = (directory / "a.json").read_bytes()

    cache.change(["a"], lambda _: {})
    cache.delete()

    assert (directory / "a.json").read_bytes() == before


@pytest.mark.parametrize("returned", [None, ["a"], "a", {"a"}])
def test_a_change_function_that_returns_no_dict_is_refused(cache: LeaseCache, returned: Any) -> None:
    cache.put("a", OLD)

    with pytest.raises(TypeError, match=rf"returned {type(returned).__name__}; return a dict, {{}} to change nothing"):
        cache.change(["a"], lambda _: returned)

    assert cache.entries() == [CacheEntry("a", OLD, 1, True)]
    cache.put("a", NEW)


def test_a_lone_key_is_not_taken_for_its_characters(cache: LeaseCache) -> None:
    with pytest.raises(TypeError, match=r"a list of keys: write \['pod-7'\]"):
        cache.change("pod-7", lambda _: {"p": OLD})

    assert len(cache) == 0


def test_a_change_of_keys_that_it_does_not_have_is_refused(cache: LeaseCache) -> None:
    with pytest.raises(ValueError, match=r"not given: \['b'\]"):
        cache.change(["a"], lambda _: {"a": OLD, "b": OLD})

    assert len(cache) == 0


def test_a_change_within_a_change_is_refused(cache: LeaseCache) -> None:
    def change(_: object) -> dict[str, Lease]:
        cache.put("b", NEW)
        return {}

    with pytest.raises(RuntimeError, match="must not make others"):
        cache.change(["a"], change)


@pytest.mark.parametrize("key", ["", "\ud800", "x" * 201])
def test_a_bad_key_is_refused(cache: LeaseCache, key: str) -> None:
    with pytest.raises(InvalidKey):
        cache.put(key, OLD)
    with pytest.raises(InvalidKey):
        cache.delete(key)
    assert len(cache) == 0


WRONG = Lease(7)  # type: ignore[arg-type]


def test_a_value_that_cannot_be_stored_changes_nothing(cache: LeaseCache, directory: Path) -> None:
    with pytest.raises(UnstorableValue):
        cache.put("a", WRONG)
    with pytest.raises(TransactionFailed, match="none of the transaction's changes was made") as failed:
        cache.change(["a", "b"], lambda _: {"b": NEW, "a": WRONG})

    assert failed.value.key == "a"
    assert isinstance(failed.value.__cause__, UnstorableValue)
    assert cache.entries() == []
    assert on_disk(directory) == {}


def test_among_independent_changes_it_costs_none_of_the_others(cache: LeaseCache, directory: Path) -> None:
    with pytest.raises(BatchFailed) as failed:
        cache.change(["a", "b"], lambda _: {"a": WRONG, "b": NEW}, independent=True)

    assert failed.value.failures.keys() == {"a"}
    assert cache.entries() == [CacheEntry("b", NEW, 1, True)]
    assert on_disk(directory) == {"b": NEW}


def test_writers_of_one_key_wait_for_each_other(cache: LeaseCache) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(_: object) -> dict[str, Lease]:
        inside.set()
        assert go_on.wait(LIMIT)
        return {"a": OLD}

    with ThreadPoolExecutor() as pool:
        first = pool.submit(cache.change, ["a"], slow)
        assert inside.wait(LIMIT)
        second = pool.submit(cache.put, "a", NEW)
        pool.submit(cache.put, "b", NEW).result(LIMIT)
        with pytest.raises(TimeoutError):
            second.result(0.1)
        assert "a" not in cache, "a reader waits for no writer"
        go_on.set()
        first.result(LIMIT)
        second.result(LIMIT)

    assert cache.entry("a") == CacheEntry("a", NEW, 2, True)


def test_after_closing_reads_go_on_and_writes_are_refused(cache: LeaseCache) -> None:
    cache.put("a", OLD)
    cache.close()
    cache.close()

    assert cache["a"] == OLD
    writes: list[Callable[[], None]] = [
        lambda: cache.put("a", NEW),
        lambda: cache.delete("a"),
        lambda: cache.delete("a", "b"),
    ]
    for write in writes:
        with pytest.raises(ManagerClosed):
            write()
    assert cache.entries() == [CacheEntry("a", OLD, 1, True)]


def test_a_directory_that_others_may_write_to_is_refused_and_given_back(real_directory: Path) -> None:
    for shared in (True, False):
        with pytest.raises(ValueError, match="the directory to itself"):
            CheckpointCache(CheckpointManager(real_directory, LEASES, sharing=shared, read_only=not shared))
    with pytest.raises(ValueError, match="the directory to itself"):
        CheckpointCache(CheckpointManager(FileStore(real_directory, sharing=True), LEASES))

    opened(real_directory).close()


def test_nothing_of_it_prints_data(cache: LeaseCache) -> None:
    cache.put("a", Lease("secret"))

    assert "secret" not in f"{cache!r} {cache.entry('a')!r} {cache.entries()!r}"
    assert repr(cache.entry("a")) == "CacheEntry('a', generation 1)"
