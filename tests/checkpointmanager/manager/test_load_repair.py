"""load(repair=True) repairs what can be repaired exactly, touches nothing else, and never raises."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    DirectoryLocked,
    Event,
    EventKind,
    InsecureDirectory,
    MemoryStore,
    Outcome,
    Put,
    Reason,
    Remove,
    Schema,
    SchemaMismatch,
)
from checkpointmanager.format import CALL_COST, Damaged
from checkpointmanager.testing import damage, watching

from ..contents import names, quarantined
from ..leases import LEASES, NEW, OLD, LeaseManager


def test_what_can_be_repaired_is_repaired_during_the_load_if_asked_and_costs_nothing_else(
    manager: LeaseManager, directory: Path, events: list[Event]
) -> None:
    for key in "abc":
        manager.create_checkpoint(key, OLD)
    good = (directory / "b.json").read_bytes()
    damage.ruin(directory, "a")
    damage.flip_bit(directory, "b")
    damaged = (directory / "b.json").read_bytes()

    assert manager.load().problems.keys() == {"a", "b"}
    assert manager.load().recoveries == {}
    assert quarantined(directory) == []
    del events[:]
    loaded = manager.load(repair=True)

    assert {key: found.data for key, found in loaded.checkpoints.items()} == dict.fromkeys("bc", OLD)
    assert list(loaded.checkpoints) == ["b", "c"]
    assert loaded.checkpoints["b"] == manager.get_checkpoint("b")
    assert loaded.problems.keys() == {"a"}
    assert {key: done.outcome for key, done in loaded.recoveries.items()} == {"b": Outcome.REPAIRED}
    assert Path(loaded.recoveries["b"].quarantined).read_bytes() == damaged
    assert (directory / "b.json").read_bytes() == good
    of_b = [event.kind for event in events if event.key == "b"]
    assert of_b == [EventKind.DAMAGE, EventKind.QUARANTINED, EventKind.RECOVERED]


def test_what_only_a_rollback_could_help_stays_a_problem(
    manager: LeaseManager, directory: Path, events: list[Event]
) -> None:
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)
    damaged = (directory / "a.json").read_bytes()[:-40]
    (directory / "a.json").write_bytes(damaged)

    loaded = manager.load(repair=True)

    problem = loaded.problems["a"]
    assert isinstance(problem, CorruptCheckpoint)
    assert problem.reason is Reason.TRUNCATED
    assert (loaded.checkpoints, loaded.recoveries) == ({}, {})
    assert (directory / "a.json").read_bytes() == damaged
    assert quarantined(directory) == []
    assert [event.kind for event in events] == [EventKind.DAMAGE]
    assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.ROLLED_BACK


def lost(lock: Path) -> None:
    lock.unlink()


def replaced_by_a_folder(lock: Path) -> None:
    lock.unlink()
    lock.mkdir()


@pytest.mark.parametrize(
    ("options", "spoil", "error"),
    [
        ({"read_only": True}, None, CheckpointWriteFailed),
        ({}, lost, DirectoryLocked),
        ({"sharing": True}, replaced_by_a_folder, InsecureDirectory),
    ],
    ids=["a reader", "an owner without its lock", "a sharer without a lock file"],
)
def test_who_may_not_write_repairs_nothing_and_gets_no_error(
    directory: Path, options: dict[str, Any], spoil: Callable[[Path], None] | None, error: type[Exception]
) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
    damage.flip_bit(directory, "a")
    with CheckpointManager(directory, LEASES, **options) as manager:
        if spoil:
            spoil(directory / ".lock")
        before = names(directory)

        loaded = manager.load(repair=True)

        assert isinstance(loaded.problems["a"], CorruptCheckpoint)
        assert loaded.recoveries == {}
        with pytest.raises(error):
            manager.recover_checkpoint("a")
    assert names(directory) == before


class Faulty(MemoryStore):
    """Fails to write, to keep, or to read from the n-th read on."""

    cannot_write = False
    cannot_keep = False
    fails_from = 10**9
    reads = 0

    def read(self, key: str, *, previous: bool = False) -> bytes:
        self.reads += 1
        if self.reads >= self.fails_from:
            raise Damaged(Reason.UNREADABLE, "Input/output error", errno=errno.EIO)
        return super().read(key, previous=previous)

    def commit(self, changes: Sequence[Put | Remove], *, together: bool = False) -> Mapping[str, CheckpointWriteFailed]:
        if not self.cannot_write:
            return super().commit(changes, together=together)
        full = OSError(errno.ENOSPC, "No space left on device")
        return {key: CheckpointWriteFailed(key, self.path_of(key), full, in_doubt=False) for key, *_ in changes}

    def quarantine(self, key: str, reason: str) -> str:
        if self.cannot_keep:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().quarantine(key, reason)


def flipped_in_memory() -> tuple[Faulty, bytes]:
    store = Faulty()
    CheckpointManager(store, LEASES).create_checkpoint("a", OLD)
    damaged = bytearray(store.current["a"])
    damaged[-20] ^= 1
    store.current["a"] = bytes(damaged)
    return store, bytes(damaged)


@pytest.mark.parametrize("fault", ["cannot_write", "cannot_keep"])
def test_a_full_disk_leaves_the_problem_as_it_was(fault: str) -> None:
    store, damaged = flipped_in_memory()
    setattr(store, fault, True)
    manager = CheckpointManager(store, LEASES)

    loaded = manager.load(repair=True)

    problem = loaded.problems["a"]
    assert isinstance(problem, CorruptCheckpoint)
    assert problem.reason is Reason.CHECKSUM_MISMATCH
    assert (loaded.checkpoints, loaded.recoveries, store.current["a"]) == ({}, {}, damaged)


def test_a_disk_that_fails_to_read_at_any_moment_raises_nothing() -> None:
    for fails_from in range(1, 20):
        store, _ = flipped_in_memory()
        store.reads, store.fails_from = 0, fails_from
        manager = CheckpointManager(store, LEASES)

        loaded = manager.load(repair=True)

        assert loaded.checkpoints.keys() ^ loaded.problems.keys() == {"a"}
        assert loaded.recoveries.keys() == loaded.checkpoints.keys()
        if store.reads < fails_from:
            assert loaded.checkpoints["a"].data == OLD, "all reads of a repair went well"
            return
    pytest.fail("the faults never ended")


def test_a_file_that_is_whole_at_the_next_look_is_no_recovery() -> None:
    store, damaged = flipped_in_memory()
    looks = iter([damaged, damaged])
    good = bytearray(damaged)
    good[-20] ^= 1
    events: list[Event] = []
    manager = CheckpointManager(store, LEASES, on_event=events.append)
    store.read = lambda key, *, previous=False: next(looks, bytes(good))  # type: ignore[method-assign]

    loaded = manager.load(repair=True)
    assert loaded.checkpoints["a"].data == OLD
    assert (loaded.problems, loaded.recoveries) == ({}, {})


def test_a_checkpoint_removed_before_it_could_be_repaired_is_left_out() -> None:
    store, damaged = flipped_in_memory()
    looks = iter([damaged, damaged])

    def read(key: str, *, previous: bool = False) -> bytes:
        try:
            return next(looks)
        except StopIteration:
            raise CheckpointNotFound(key, store.path_of(key)) from None

    manager = CheckpointManager(store, LEASES)
    store.read = read  # type: ignore[method-assign]

    loaded = manager.load(repair=True)
    assert (loaded.checkpoints, loaded.problems, loaded.recoveries) == ({}, {}, {})


def test_a_load_with_very_many_damaged_files_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in hashes, not in seconds: a hundred large files would take a minute or more."""
    cost = 0

    def counted(body: bytearray) -> int:
        nonlocal cost
        cost += len(body) + CALL_COST
        return 0

    store = MemoryStore()
    manager = CheckpointManager(store)
    large = manager.create_checkpoint("large", "x" * 65_000)
    for number in range(100):
        store.current[f"cut-{number}"] = store.current["large"][:-100]
        store.current[f"spoilt-{number}"] = store.current["large"].replace(b"xxxx", b"yyyy")
    monkeypatch.setattr("checkpointmanager.format._repair.xxh3_64_intdigest", counted)

    loaded = manager.load(repair=True)

    assert len(loaded.problems) == 200
    assert loaded.checkpoints == {"large": large}
    assert 50e9 < cost < 101e9, "bytes: two or three seconds"


def test_a_lock_that_others_hold_is_waited_for_once(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as owner:
        for key in "abc":
            owner.create_checkpoint(key, OLD)
            damage.flip_bit(real_directory, key)

    with (
        CheckpointManager(real_directory, LEASES, sharing=True, lock_timeout=0) as sharer,
        CheckpointManager(real_directory, LEASES),
        watching(real_directory) as calls,
    ):
        loaded = sharer.load(repair=True)
    assert loaded.problems.keys() == {"a", "b", "c"}
    opened = sum(call.name == "open" and call.concerns(".lock") for call in calls)
    assert opened <= 2, "to take it, and to read who has it"


def test_a_repaired_file_that_does_not_fit_the_program_is_a_mismatch_and_no_damage(directory: Path) -> None:
    with CheckpointManager(directory, Schema("Lease", type=dict[str, int])) as manager:
        manager.create_checkpoint("a", {"holder": 5})
    damage.flip_bit(directory, "a")

    with CheckpointManager(directory, LEASES) as manager:
        loaded = manager.load(repair=True)
        assert isinstance(loaded.problems["a"], SchemaMismatch)
        assert manager.verify().problems == {}, "it is whole again"
