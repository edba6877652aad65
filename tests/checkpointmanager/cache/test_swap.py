"""The hook that lets a user of the cache change its own indexes and flags in the same step."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointmanager import (
    REMOVED,
    CacheEntry,
    CheckpointCache,
    CheckpointError,
    CheckpointManager,
    CheckpointWriteFailed,
    MemoryStore,
    Put,
    Remove,
    TransactionFailed,
)
from checkpointmanager.testing import failing

from ...long import times
from ..leases import BOOT, LEASES, NEW, OLD, Lease

Swap = tuple[str, CacheEntry[Lease] | None, CacheEntry[Lease] | None]


def opened(place: Path | MemoryStore, swaps: list[Swap]) -> CheckpointCache[Lease]:
    manager = CheckpointManager(place, LEASES, boot_id=BOOT)
    return CheckpointCache(manager, on_swap=lambda *swap: swaps.append(swap))


def test_each_swap_is_seen_once_with_the_old_and_the_new_entry(directory: Path) -> None:
    swaps: list[Swap] = []
    with opened(directory, swaps) as cache:
        cache.put("a", OLD)
        cache.put("a", NEW)
        cache.delete("a")
        cache.delete("a")

    first, second = CacheEntry("a", OLD, 1, True), CacheEntry("a", NEW, 2, True)
    assert swaps == [("a", None, first), ("a", first, second), ("a", second, None)]


def test_an_entry_that_exists_at_open_is_no_swap(directory: Path) -> None:
    with opened(directory, []) as cache:
        cache.put("a", OLD)
    swaps: list[Swap] = []
    with opened(directory, swaps) as cache:
        assert cache["a"] == OLD
    assert swaps == []


def test_it_is_called_when_readers_of_the_key_see_the_new_entry(directory: Path) -> None:
    seen: list[Any] = []
    cache: CheckpointCache[Lease]

    def look(key: str, _: object, new: CacheEntry[Lease] | None) -> None:
        seen.append((cache.entry(key) is new, (directory / "a.json").exists()))

    cache = CheckpointCache(CheckpointManager(directory, LEASES), on_swap=look)
    cache.put("a", OLD)
    cache.delete("a")
    cache.close()

    assert seen == [(True, True), (True, False)]


def test_a_failed_write_is_no_swap_and_a_doubt_is_one(directory: Path) -> None:
    swaps: list[Swap] = []
    with opened(directory, swaps) as cache:
        with failing(directory, "write", errno.ENOSPC), pytest.raises(CheckpointWriteFailed):
            cache.put("a", OLD)
        assert swaps == []
        with failing(directory, "fdatasync", errno.EIO), pytest.raises(CheckpointWriteFailed):
            cache.put("a", OLD)

    ((key, old, new),) = swaps
    assert (key, old) == ("a", None)
    assert new
    assert new.in_doubt
    assert new.in_doubt.outcomes == (OLD,)


class FailingStore(MemoryStore):
    """Answers each commit as the test wants: durable, refused, or in doubt."""

    answer = "durable"

    def commit(self, changes: Sequence[Put | Remove], *, together: bool = False) -> Mapping[str, CheckpointWriteFailed]:
        if self.answer != "refused":
            super().commit(changes, together=together)
        if self.answer == "durable":
            return {}
        error = OSError(5, "I/O error")
        doubt = self.answer == "in doubt"
        if together:
            raise TransactionFailed("", self.path, error, in_doubt=doubt)
        return {key: CheckpointWriteFailed(key, key, error, in_doubt=doubt) for key, *_ in changes}


changes = st.dictionaries(
    st.sampled_from("abc"), st.builds(Lease, st.sampled_from("xyz")) | st.just(REMOVED), min_size=1
)
answers = st.sampled_from(["durable", "durable", "refused", "in doubt"])


@settings(max_examples=times(40, 2000))
@given(st.lists(st.tuples(changes, answers), max_size=10))
def test_an_index_that_follows_the_swaps_always_matches_the_entries(steps: list[tuple[Any, str]]) -> None:
    """Compared with the index computed from the entries, and from a plain dict of what was acknowledged."""
    index: dict[str, CacheEntry[Lease]] = {}
    acknowledged: dict[str, Lease] = {}

    def follow(key: str, old: CacheEntry[Lease] | None, new: CacheEntry[Lease] | None) -> None:
        assert index.get(key) == old
        if new is None:
            del index[key]
        else:
            index[key] = new

    store = FailingStore()
    cache = CheckpointCache(CheckpointManager(store, LEASES, boot_id=BOOT), on_swap=follow)
    for outcomes, answer in steps:
        store.answer = answer
        try:
            cache.change(outcomes, lambda _, outcomes=outcomes: outcomes)  # type: ignore[misc]
        except CheckpointError:
            pass
        else:
            for key, outcome in outcomes.items():
                acknowledged.pop(key, None)
                if outcome is not REMOVED:
                    acknowledged[key] = outcome
        assert index == {entry.key: entry for entry in cache.entries()}
        assert {entry.key: entry.value for entry in cache.entries() if entry.generation} == acknowledged
    store.answer = "durable"
    for key in cache:
        doubt = index[key].in_doubt
        possible = [*([index[key].value] if index[key].generation else []), *(doubt.outcomes if doubt else ())]
        with CheckpointManager(store, LEASES) as manager:
            stored = manager.get_checkpoint(key).data if key in manager else REMOVED
        assert stored in possible
