"""recover_checkpoint: an exact repair where it can be proved, a rollback only on request, else nothing.

It carries out a plan: test_recovery_plan.py has what a plan says, and when nothing is done.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointWriteFailed,
    Event,
    EventKind,
    MemoryStore,
    Outcome,
    Reason,
    Schema,
)
from checkpointmanager.format import Damaged
from checkpointmanager.testing import damage

from ..contents import quarantined
from ..leases import BOOT, LEASES, NEW, OLD, Lease, LeaseManager


def kinds(events: list[Event]) -> list[EventKind]:
    return [event.kind for event in events]


@pytest.mark.parametrize("byte", [0, 12, 20, 40, -20, -2, -1])
def test_a_flipped_bit_is_repaired_exactly(
    manager: LeaseManager, directory: Path, events: list[Event], byte: int
) -> None:
    manager.create_checkpoint("a", OLD)
    good = (directory / "a.json").read_bytes()
    damage.flip_bit(directory, "a", byte * 8)
    damaged = (directory / "a.json").read_bytes()

    recovery = manager.recover_checkpoint("a")

    assert recovery.outcome is Outcome.REPAIRED
    assert (directory / "a.json").read_bytes() == good
    assert quarantined(directory) == [damaged]
    assert Path(recovery.quarantined).read_bytes() == damaged
    assert kinds(events) == [EventKind.DAMAGE, EventKind.QUARANTINED, EventKind.RECOVERED]


def test_trailing_bytes_are_cut_off(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    good = (directory / "a.json").read_bytes()
    (directory / "a.json").write_bytes(good + b"\0\0rubbish")

    assert manager.recover_checkpoint("a").outcome is Outcome.REPAIRED
    assert (directory / "a.json").read_bytes() == good


def test_a_rollback_needs_consent(manager: LeaseManager, directory: Path, events: list[Event]) -> None:
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)
    damage.ruin(directory, "a")
    damaged = (directory / "a.json").read_bytes()

    recovery = manager.recover_checkpoint("a")

    assert recovery.outcome is Outcome.NEEDS_ROLLBACK
    assert recovery.rollback_to == 1
    assert "generation 1" in recovery.detail
    assert (directory / "a.json").read_bytes() == damaged
    assert quarantined(directory) == []
    assert kinds(events) == [EventKind.DAMAGE]


def test_a_rollback_gives_the_old_data_a_generation_above_all_seen(directory: Path) -> None:
    with CheckpointManager(directory, LEASES, boot_id="boot-before") as manager:
        before = manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
    damage.ruin(directory, "a")
    damaged = (directory / "a.json").read_bytes()

    with CheckpointManager(directory, LEASES, boot_id=BOOT) as manager:
        recovery = manager.recover_checkpoint("a", rollback=True)
        found = manager.get_checkpoint("a")

    assert recovery.outcome is Outcome.ROLLED_BACK
    assert found.data == OLD
    assert found.generation == 3
    assert (found.boot, found.written) == (before.boot, before.written), "they say when the data was true"
    assert found.from_this_boot is False
    assert quarantined(directory) == [damaged]


def test_a_rollback_from_bytes_that_state_nothing_goes_above_the_previous_generation(
    manager: LeaseManager, directory: Path
) -> None:
    for n in range(5):
        manager.create_checkpoint("a", Lease("a", n))
    (directory / "a.json").write_bytes(bytes(300))

    manager.recover_checkpoint("a", rollback=True)

    assert manager.get_checkpoint("a").data == Lease("a", 3)
    assert manager.get_checkpoint("a").generation == 6
    assert manager.create_checkpoint("a", NEW).generation == 7


def test_a_rollback_goes_above_the_generation_that_the_damaged_bytes_state(
    manager: LeaseManager, directory: Path
) -> None:
    for n in range(9):
        manager.create_checkpoint("a", Lease("a", n))
        if n == 3:
            fourth = (directory / "a.json").read_bytes()
    damage.ruin(directory, "a")
    (directory / ".previous-a").write_bytes(fourth)  # as a failed write may leave it: older by more than one

    manager.recover_checkpoint("a", rollback=True)

    assert manager.get_checkpoint("a").data == Lease("a", 3)
    assert manager.get_checkpoint("a").generation == 10


def test_what_cannot_be_recovered_is_not_taken_for_unchanged(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    damage.ruin(directory, "a")
    manager.recover_checkpoint("a")

    assert not manager.create_checkpoint("a", OLD).unchanged
    assert manager.get_checkpoint("a").data == OLD


@pytest.mark.parametrize("schema", [Schema("Lease", version=2, type=Lease), Schema("Other", type=Lease)], ids=repr)
def test_bytes_that_would_be_whole_but_another_programs_are_not_put_back(
    directory: Path, schema: Schema[Lease]
) -> None:
    with CheckpointManager(directory, schema) as theirs:
        theirs.create_checkpoint("a", OLD)
        theirs.create_checkpoint("a", NEW)
    damage.flip_bit(directory, "a")
    damaged = (directory / "a.json").read_bytes()

    with CheckpointManager(directory, LEASES) as manager:
        assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.HOPELESS
    assert (directory / "a.json").read_bytes() == damaged


def test_a_torn_previous_generation_is_not_rolled_back_to(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)
    damage.ruin(directory, "a")
    damage.ruin(directory, "a", previous=True)

    assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.HOPELESS


def test_the_previous_generation_of_another_key_is_not_rolled_back_to(manager: LeaseManager, directory: Path) -> None:
    for key in "ab":
        manager.create_checkpoint(key, OLD)
        manager.create_checkpoint(key, NEW)
    damage.ruin(directory, "a")
    (directory / ".previous-a").write_bytes((directory / ".previous-b").read_bytes())

    assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.HOPELESS


@pytest.mark.parametrize("stand_in", ["symlink", "dangling", "folder"])
def test_what_is_no_file_is_not_replaced_until_somebody_moves_it_away(
    manager: LeaseManager, directory: Path, stand_in: str
) -> None:
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)
    target, name = directory.parent / "target", directory / "a.json"
    if stand_in == "symlink":
        target.write_bytes(b"untouched")
    name.unlink()
    name.mkdir() if stand_in == "folder" else name.symlink_to(target)

    with pytest.raises(CheckpointWriteFailed, match="move it away") as refused:
        manager.recover_checkpoint("a", rollback=True)
    assert (refused.value.errno, refused.value.in_doubt) == (errno.EISDIR, False)
    assert name.is_dir() if stand_in == "folder" else name.is_symlink()
    assert target.read_bytes() == b"untouched" if stand_in == "symlink" else not target.exists()

    name.rmdir() if stand_in == "folder" else name.unlink()
    name.write_bytes(b"")
    assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.ROLLED_BACK
    assert manager.get_checkpoint("a").data == OLD


class Short(MemoryStore):
    """Out of descriptors for the first few reads."""

    shortage = 0

    def read(self, key: str, *, previous: bool = False) -> bytes:
        if self.shortage:
            self.shortage -= 1
            raise Damaged(Reason.UNREADABLE, "Too many open files", errno=errno.EMFILE)
        return super().read(key, previous=previous)


def test_a_shortage_of_descriptors_causes_no_rollback() -> None:
    store = Short()
    manager: CheckpointManager[Any] = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    manager.create_checkpoint("a", 2)
    store.shortage = 2

    with pytest.raises(CheckpointWriteFailed, match="Too many open files"):
        manager.recover_checkpoint("a", rollback=True)
    assert manager.get_checkpoint("a").data == 2


def test_a_shortage_during_a_repair_causes_no_rollback(
    manager: LeaseManager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)
    damage.flip_bit(directory, "a")
    damaged = (directory / "a.json").read_bytes()
    read, left = manager._store.read, iter([True])  # the second look, before damage is reported, fails

    def reads(key: str, *, previous: bool = False) -> bytes:
        if not previous and not next(left, False):
            raise Damaged(Reason.UNREADABLE, "Too many open files", errno=errno.EMFILE)
        return read(key, previous=previous)

    monkeypatch.setattr(manager._store, "read", reads)
    with pytest.raises(CheckpointWriteFailed, match="Too many open files"):
        manager.recover_checkpoint("a", rollback=True)
    assert (directory / "a.json").read_bytes() == damaged


def test_a_repaired_checkpoint_counts_on(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    manager.create_checkpoint("a", NEW)
    damage.flip_bit(directory, "a")
    manager.recover_checkpoint("a")

    assert manager.get_checkpoint("a").generation == 2
    assert manager.create_checkpoint("a", OLD).generation == 3
    previous = manager.previous_checkpoint("a")
    assert previous is not None
    assert previous.generation == 2


def test_bytes_that_would_be_whole_but_of_another_key_are_not_put_back(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("b", OLD)
    (directory / "a.json").write_bytes((directory / "b.json").read_bytes())
    damage.flip_bit(directory, "a")
    damaged = (directory / "a.json").read_bytes()

    assert manager.recover_checkpoint("a").outcome is Outcome.HOPELESS
    assert (directory / "a.json").read_bytes() == damaged


def test_writing_over_bytes_that_state_nothing_counts_on_from_the_previous_generation(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        for n in range(5):
            manager.create_checkpoint("a", Lease("a", n))
    (directory / "a.json").write_bytes(bytes(300))

    with CheckpointManager(directory, LEASES) as manager:
        assert manager.create_checkpoint("a", NEW).generation == 6, "the fifth is lost, but existed"


def test_an_exact_repair_restores_these_bytes_even_if_the_previous_generation_is_newer(real_directory: Path) -> None:
    """Somebody went back to an older file on purpose; then one of its bits flipped."""
    with CheckpointManager(real_directory) as manager:
        manager.create_checkpoint("a", "chosen")
        chosen = (real_directory / "a.json").read_bytes()
        manager.create_checkpoint("a", "newer")
        manager.create_checkpoint("a", "newest")
    (real_directory / "a.json").write_bytes(chosen)
    damage.flip_bit(real_directory, "a")

    with CheckpointManager(real_directory) as manager:
        assert manager.load(repair=True).checkpoints["a"].data == "chosen"
        previous = manager.previous_checkpoint("a")
        assert previous
        assert previous.data == "newer", "evidence, for whoever wants it"
    assert (real_directory / "a.json").read_bytes() == chosen
