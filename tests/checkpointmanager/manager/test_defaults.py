"""What get and update do where there is no checkpoint: a default replaces "not found" and no other error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, CheckpointNotFound, CorruptCheckpoint, InvalidKey, Schema, WrongKind
from checkpointmanager.testing import damage

from ..leases import NEW, OLD, Lease, LeaseManager


def renewed(lease: Lease) -> Lease:
    return replace(lease, seconds=lease.seconds + 1)


@pytest.mark.parametrize("default", [None, 0, OLD], ids=repr)
def test_get_returns_the_default_for_a_missing_checkpoint(manager: LeaseManager, default: object) -> None:
    assert manager.get_checkpoint("a", default) is default
    with pytest.raises(CheckpointNotFound):
        manager.get_checkpoint("a")


def test_get_prefers_the_checkpoint_to_the_default(manager: LeaseManager) -> None:
    manager.create_checkpoint("a", OLD)
    found = manager.get_checkpoint("a", None)
    assert found is not None
    assert found.data == OLD


def test_get_never_returns_the_default_for_damage(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    damage.flip_bit(directory, "a")
    with pytest.raises(CorruptCheckpoint):
        manager.get_checkpoint("a", None)


def test_get_never_returns_the_default_for_another_kind(directory: Path) -> None:
    with CheckpointManager(directory, Schema("Other", type=Lease)) as theirs:
        theirs.create_checkpoint("a", OLD)
    with CheckpointManager(directory, Schema("Lease", type=Lease)) as manager, pytest.raises(WrongKind):
        manager.get_checkpoint("a", None)


def test_get_never_returns_the_default_for_a_bad_key(manager: LeaseManager) -> None:
    with pytest.raises(InvalidKey):
        manager.get_checkpoint("", None)


def test_update_creates_a_missing_checkpoint_from_the_changed_default(manager: LeaseManager) -> None:
    created = manager.update_checkpoint("a", renewed, OLD)
    assert (created.data, created.generation) == (renewed(OLD), 1)
    assert manager.get_checkpoint("a").data == renewed(OLD)

    again = manager.update_checkpoint("a", renewed, OLD)
    assert (again.data, again.generation) == (renewed(renewed(OLD)), 2)


def test_update_hands_none_to_the_change_if_that_is_the_default(manager: LeaseManager) -> None:
    seen: list[Lease | None] = []

    def change(lease: Lease | None) -> Lease:
        seen.append(lease)
        return NEW if lease else OLD

    assert manager.update_checkpoint("a", change, None).data == OLD
    assert manager.update_checkpoint("a", change, None).data == NEW
    assert seen == [None, OLD]


def test_update_without_a_default_still_needs_a_checkpoint(manager: LeaseManager) -> None:
    with pytest.raises(CheckpointNotFound):
        manager.update_checkpoint("a", renewed)
    assert "a" not in manager


def test_update_never_makes_a_default_of_damage(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    damage.flip_bit(directory, "a")
    damaged = (directory / "a.json").read_bytes()

    with pytest.raises(CorruptCheckpoint):
        manager.update_checkpoint("a", renewed, OLD)
    assert (directory / "a.json").read_bytes() == damaged


def test_update_writes_nothing_if_the_change_of_the_default_raises(manager: LeaseManager) -> None:
    with pytest.raises(ZeroDivisionError):
        manager.update_checkpoint("a", lambda lease: Lease("a", lease.seconds // 0), OLD)
    assert "a" not in manager


def test_a_checkpoint_removed_by_hand_is_created_anew_by_an_update(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", NEW)
    (directory / "a.json").unlink()

    created = manager.update_checkpoint("a", lambda _: NEW, OLD)
    assert not created.unchanged
    assert manager.get_checkpoint("a").data == NEW
