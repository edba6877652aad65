"""The cache is a Mapping in which a key that cannot be trusted is present, and reading its value raises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointCache,
    CheckpointManager,
    CheckpointNotFound,
    CorruptCheckpoint,
    MemoryStore,
    Schema,
)
from checkpointmanager.testing.damage import ruin

from ..leases import LEASES, NEW, OLD, Lease

LeaseCache = CheckpointCache[Lease]


def filled(data: Mapping[str, Any]) -> CheckpointCache[Any]:
    cache = CheckpointCache[Any](MemoryStore(), Schema("Any"))
    for key, value in data.items():
        cache.put(key, value)
    return cache


@pytest.fixture
def damaged() -> LeaseCache:
    """Of its three keys, b cannot be trusted."""
    store = MemoryStore()
    with CheckpointManager(store, LEASES) as manager:
        for key in ("a", "b", "c"):
            manager.create_checkpoint(key, OLD)
        ruin(store, "b")
    return CheckpointCache(store, LEASES)


def test_a_key_that_cannot_be_trusted_is_present(damaged: LeaseCache) -> None:
    assert "b" in damaged
    assert len(damaged) == 3
    assert sorted(damaged) == sorted(damaged.keys()) == ["a", "b", "c"]
    assert "b" in damaged.keys()  # noqa: SIM118


READS: dict[str, Callable[[LeaseCache], object]] = {
    "cache[key]": lambda cache: cache["b"],
    "get": lambda cache: cache.get("b"),
    "get with a default": lambda cache: cache.get("b", OLD),
    "values": lambda cache: list(cache.values()),
    "a search in values": lambda cache: NEW in cache.values(),
    "items": lambda cache: list(cache.items()),
    "a search in items": lambda cache: ("b", OLD) in cache.items(),
    "dict": dict,
    "equality": lambda cache: cache == {"a": OLD},
    "inequality": lambda cache: cache != {"a": OLD},
}


@pytest.mark.parametrize("read", READS)
def test_reading_its_value_raises_its_problem(damaged: LeaseCache, read: str) -> None:
    """An allocator that takes a missing lease for a free address must not get that far."""
    with pytest.raises(CorruptCheckpoint) as caught:
        READS[read](damaged)
    assert caught.value.key == "b"


def test_entries_and_good_are_the_ways_around(damaged: LeaseCache) -> None:
    assert damaged.good() == {"a": OLD, "c": OLD}
    assert {entry.key: entry.problem is None for entry in damaged.entries()} == {"a": True, "b": False, "c": True}
    damaged.put("b", NEW)
    assert dict(damaged) == damaged.good() == {"a": OLD, "b": NEW, "c": OLD}


def test_it_is_a_mapping_that_cannot_be_hashed_or_assigned_to() -> None:
    cache = filled({"a": 1})
    assert isinstance(cache, Mapping)
    with pytest.raises(TypeError, match="unhashable"):
        hash(cache)
    with pytest.raises(TypeError, match="does not support item assignment"):
        cache["a"] = 2  # type: ignore[index]
    with pytest.raises(TypeError, match="does not support item deletion"):
        del cache["a"]  # type: ignore[attr-defined]
    assert cache == {"a": 1} == filled({"a": 1})
    assert cache != filled({"a": 2})


INVALID: list[Any] = ["", "a" * 201, "\ud800", 5, None, b"a", ("a",)]


@pytest.mark.parametrize("key", INVALID)
def test_a_key_that_no_checkpoint_can_have_is_absent(key: Any) -> None:
    cache = filled({"a": 1})
    assert key not in cache
    assert cache.get(key, "absent") == "absent"
    assert cache.entry(key) is None
    with pytest.raises(CheckpointNotFound, match="no such checkpoint"):
        cache[key]


def test_like_a_dict_it_refuses_keys_that_cannot_be_hashed() -> None:
    cache: CheckpointCache[Any] = filled({})
    unhashable: Any = []
    reads: list[Callable[[], object]] = [
        lambda: cache[unhashable],
        lambda: unhashable in cache,
        lambda: cache.get(unhashable),
    ]
    for read in reads:
        with pytest.raises(TypeError, match="unhashable"):
            read()


def test_what_another_thread_deletes_does_not_end_an_iteration() -> None:
    cache = filled(dict.fromkeys("abcd", 1))
    seen = []
    for key, _ in cache.items():
        thread = threading.Thread(target=cache.delete, args=("a", "b", "c", "d"))
        thread.start()
        thread.join()
        seen.append(key)
    assert seen == ["a", "b", "c", "d"]


class Deleting:
    """Deletes everything as soon as it is compared."""

    def __init__(self, cache: CheckpointCache[Any]) -> None:
        self.cache = cache

    def __eq__(self, other: object) -> bool:
        self.cache.delete(*self.cache)
        return False

    __hash__ = None  # type: ignore[assignment]


def test_the_same_for_a_search_in_values() -> None:
    cache = filled(dict.fromkeys("abcd", 1))
    assert Deleting(cache) not in cache.values()
    assert len(cache) == 0


def test_views_show_later_changes() -> None:
    cache = filled({"a": 1})
    keys, values, items = cache.keys(), cache.values(), cache.items()
    cache.put("b", 2)
    assert (list(keys), list(values), list(items)) == (["a", "b"], [1, 2], [("a", 1), ("b", 2)])
    assert len(values) == len(items) == 2
    assert items & {("b", 2), ("c", 3)} == {("b", 2)}


def test_it_is_made_from_a_directory_and_a_schema_or_from_a_manager(tmp_path: Path) -> None:
    with CheckpointCache(tmp_path, LEASES) as cache:
        cache.put("a", OLD)
    with CheckpointCache(str(tmp_path), schema=LEASES) as cache:
        assert dict(cache) == {"a": OLD}
    with CheckpointManager(tmp_path, LEASES) as manager:
        with pytest.raises(TypeError, match="either the manager, or a directory and a schema"):
            CheckpointCache(manager, LEASES)  # type: ignore[call-overload]
        assert dict(CheckpointCache(manager)) == {"a": OLD}
