"""load(repair=True) repairs what can be repaired exactly, touches nothing else, and never raises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    DirectoryLocked,
    Event,
    EventKind,
    InsecureDirectory,
    MemoryStore,
    Outcome,
    Reason,
)
from checkpointmanager.format import CALL_COST
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
