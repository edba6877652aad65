"""Whatever the disk answers, memory holds what is certainly stored, and what may be stored instead."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from checkpointmanager import (
    REMOVED,
    BatchFailed,
    CacheEntry,
    CheckpointCache,
    CheckpointError,
    CheckpointManager,
    CheckpointTooNew,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    Outcome,
    Schema,
    TransactionFailed,
    WrongKind,
)
from checkpointmanager.testing import damage, failing

from ..leases import BOOT, LEASES, NEW, OLD, Lease

pytestmark = pytest.mark.usefixtures("kit_standing_by", "no_waiting_for_the_disk")

LeaseCache = CheckpointCache[Lease]
OTHER = Lease("other")


def opened(directory: Path) -> LeaseCache:
    return CheckpointCache(CheckpointManager(directory, LEASES, boot_id=BOOT))


@pytest.fixture
def cache(directory: Path) -> Iterator[LeaseCache]:
    """Key a exists, in its second generation."""
    with opened(directory) as cache:
        cache.put("a", Lease("oldest"))
        cache.put("a", OLD)
        yield cache


def unsynced(directory: Path, error: int | BaseException = errno.EIO) -> AbstractContextManager[object]:
    """The record of a change is in the journal, but it may not survive a power loss."""
    return failing(directory, "fdatasync", error, lasting=True)


def known(cache: LeaseCache, key: str) -> CacheEntry[Lease]:
    entry = cache.entry(key)
    assert entry
    return entry


def outcomes(cache: LeaseCache, key: str) -> tuple[object, ...]:
    doubt = known(cache, key).in_doubt
    return doubt.outcomes if doubt else ()


@pytest.mark.parametrize(("call", "number"), [("open", errno.EMFILE), ("write", errno.ENOSPC)])
def test_a_failed_write_changes_nothing_in_memory(cache: LeaseCache, directory: Path, call: str, number: int) -> None:
    before = cache.entries()
    changes: list[Callable[[], None]] = [
        lambda: cache.put("new", NEW),
        lambda: cache.change(["new", "b"], lambda _: {"new": NEW, "b": NEW}),
    ]
    for change in changes:
        with failing(directory, call, number, lasting=True), pytest.raises(CheckpointWriteFailed) as failed:
            change()
        assert not failed.value.in_doubt
        cache.delete("b")
    assert (cache.entries(), cache.problems) == (before, {})


def test_a_write_in_doubt_serves_the_old_value_and_keeps_the_new_one(cache: LeaseCache, directory: Path) -> None:
    with unsynced(directory), pytest.raises(CheckpointWriteFailed) as failed:
        cache.put("a", NEW)

    assert cache["a"] == OLD
    entry = known(cache, "a")
    assert (entry.value, entry.generation, entry.problem) == (OLD, 2, None)
    assert entry.in_doubt
    assert entry.in_doubt == (failed.value, (NEW,))
    assert cache.problems == {"a": failed.value}


def test_every_outcome_that_is_in_doubt_is_kept(cache: LeaseCache, directory: Path) -> None:
    changes: list[Callable[[], None]] = [
        lambda: cache.put("a", NEW),
        lambda: cache.delete("a"),
        lambda: cache.put("a", OTHER),
    ]
    with unsynced(directory):
        for change in changes:
            with pytest.raises(CheckpointWriteFailed):
                change()

    assert outcomes(cache, "a") == (NEW, REMOVED, OTHER)
    assert cache["a"] == OLD


def test_a_new_key_in_doubt_is_listed_without_a_value(cache: LeaseCache, directory: Path) -> None:
    with unsynced(directory), pytest.raises(CheckpointWriteFailed):
        cache.put("b", NEW)

    assert "b" in cache
    assert outcomes(cache, "b") == (NEW,)
    with pytest.raises(CheckpointWriteFailed) as raised:
        cache["b"]
    assert raised.value.in_doubt
    with pytest.raises(CheckpointWriteFailed):
        cache.get("b", OLD)


def test_the_removal_of_a_missing_key_writes_nothing_and_cannot_fail(cache: LeaseCache, directory: Path) -> None:
    with unsynced(directory):
        cache.delete("missing")

    assert "missing" not in cache


@pytest.mark.parametrize("settle", ["put", "put the same again", "delete"])
def test_the_next_change_that_succeeds_settles_a_doubt(cache: LeaseCache, directory: Path, settle: str) -> None:
    with unsynced(directory), pytest.raises(CheckpointWriteFailed):
        cache.put("a", NEW)

    if settle == "delete":
        cache.delete("a")
    else:
        cache.put("a", OTHER if settle == "put" else NEW)

    assert cache.problems == {}
    cache.close()
    with opened(directory) as again:
        assert again.entries() == cache.entries()


@pytest.mark.parametrize("interrupted", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_an_interrupted_change_is_in_doubt(
    cache: LeaseCache, directory: Path, interrupted: type[BaseException]
) -> None:
    with unsynced(directory, interrupted()), pytest.raises(interrupted):
        cache.change(["a", "b"], lambda _: {"a": NEW, "b": NEW})

    assert cache["a"] == OLD
    assert outcomes(cache, "a") == outcomes(cache, "b") == (NEW,)
    assert "interrupted" in str(cache.problems["b"])


def test_a_batch_that_failed_in_part_leaves_exactly_the_durable_part(cache: LeaseCache, directory: Path) -> None:
    for key in "bc":
        cache.put(key, OLD)

    with failing(directory, "write", errno.ENOSPC, nth=2), pytest.raises(BatchFailed) as failed:
        cache.change(["a", "b", "c"], lambda _: {"a": NEW, "b": OTHER, "c": REMOVED}, independent=True)

    assert failed.value.failures.keys() == {"b"}
    assert {entry.key: (entry.value, entry.generation) for entry in cache.entries()} == {"a": (NEW, 3), "b": (OLD, 1)}
    cache.close()
    with opened(directory) as again:
        assert again.entries() == cache.entries()


def change_three(cache: LeaseCache) -> None:
    cache.change(["a", "b", "c"], lambda _: {"a": NEW, "b": REMOVED, "c": OTHER})


def test_a_transaction_in_doubt_is_so_for_all_its_keys(cache: LeaseCache, directory: Path) -> None:
    cache.put("b", OLD)

    with unsynced(directory), pytest.raises(TransactionFailed) as failed:
        change_three(cache)

    assert failed.value.in_doubt
    assert cache.problems == dict.fromkeys("abc", failed.value)
    assert [outcomes(cache, key) for key in "abc"] == [(NEW,), (REMOVED,), (OTHER,)]
    assert (cache["a"], cache["b"]) == (OLD, OLD)


@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_a_durable_change_is_in_memory_before_it_is_in_place(cache: LeaseCache, directory: Path, call: str) -> None:
    cache.put("b", OLD)

    with failing(directory, call, errno.EIO, lasting=True):
        change_three(cache)

    assert {entry.key: entry.value for entry in cache.entries()} == {"a": NEW, "c": OTHER}
    assert cache.problems == {}
    cache.close()
    with opened(directory) as again:
        assert again.entries() == cache.entries()


@pytest.mark.parametrize("keys", [["a"], ["a", "b"]], ids=["one", "several"])
def test_an_error_raised_by_encode_leaves_no_doubt_since_nothing_was_written(directory: Path, keys: list[str]) -> None:
    picky: Schema[int] = Schema("Number", encode=lambda value: 1 // value, decode=lambda plain: plain)
    with CheckpointCache(CheckpointManager(directory, picky)) as cache:
        cache.put("a", 1)
        before = cache.entries()

        with pytest.raises(ZeroDivisionError):
            cache.change(keys, lambda _: dict.fromkeys(keys, 0))

        assert cache.entries() == before
        assert cache.problems == {}


# Damage


def test_what_can_be_repaired_exactly_is_repaired_while_the_cache_is_built(cache: LeaseCache, directory: Path) -> None:
    cache.close()
    before = (directory / "a.json").read_bytes()
    damage.flip_bit(directory, "a")

    with opened(directory) as again:
        assert again["a"] == OLD
        assert again.recoveries["a"].outcome is Outcome.REPAIRED

    assert (directory / "a.json").read_bytes() == before


def newer(directory: Path) -> None:
    with CheckpointManager(directory, Schema("Lease", version=9, type=Lease)) as manager:
        manager.create_checkpoint("a", NEW)


def of_another_kind(directory: Path) -> None:
    (directory / "a.json").unlink()
    with CheckpointManager(directory, Schema("Claim")) as manager:
        manager.create_checkpoint("a", 1)


PROBLEMS: dict[str, tuple[Callable[[Path], object], type[CheckpointError], Lease | None]] = {
    "truncated": (lambda directory: damage.truncate(directory, "a"), CorruptCheckpoint, Lease("oldest")),
    "empty": (lambda directory: damage.empty(directory, "a"), CorruptCheckpoint, Lease("oldest")),
    "a folder": (lambda directory: damage.replace_by_directory(directory, "a"), CorruptCheckpoint, Lease("oldest")),
    "too new": (newer, CheckpointTooNew, OLD),
    "another kind": (of_another_kind, WrongKind, None),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_cannot_be_trusted_is_present_without_a_value(cache: LeaseCache, directory: Path, problem: str) -> None:
    cache.put("b", NEW)
    cache.close()
    spoil, error, previous = PROBLEMS[problem]
    spoil(directory)

    with opened(directory) as again:
        entry = known(again, "a")
        assert (entry.value, entry.generation, entry.previous, entry.in_doubt) == (None, 0, previous, None)
        assert isinstance(entry.problem, error)
        assert again.problems.keys() == {"a"}
        assert again["b"] == NEW
        reads: list[Callable[[], object]] = [lambda: again["a"], lambda: again.get("a"), lambda: again.get("a", OLD)]
        for read in reads:
            with pytest.raises(error) as raised:
                read()
            assert raised.value is not entry.problem, "each reader gets an error of its own"
            assert str(raised.value) == str(entry.problem)


@pytest.mark.parametrize("problem", ["truncated", "empty"])
@pytest.mark.parametrize("cure", ["put", "delete"])
def test_damage_is_over_when_the_key_is_written_or_removed(
    cache: LeaseCache, directory: Path, problem: str, cure: str
) -> None:
    cache.close()
    PROBLEMS[problem][0](directory)
    with opened(directory) as again:
        if cure == "put":
            again.put("a", NEW)
            assert again["a"] == NEW
        else:
            again.delete("a")
            assert "a" not in again
        assert again.problems == {}
    assert len(list((directory / ".quarantine").iterdir())) == 1


def test_damage_outranks_doubt(cache: LeaseCache, directory: Path) -> None:
    cache.close()
    damage.truncate(directory, "a")
    with opened(directory) as again:
        with unsynced(directory), pytest.raises(CheckpointWriteFailed):
            again.put("a", NEW)

        assert isinstance(again.problems["a"], CorruptCheckpoint)
        with pytest.raises(CorruptCheckpoint):
            again["a"]
        assert outcomes(again, "a") == (NEW,)
        assert known(again, "a").previous == Lease("oldest")
