"""update_checkpoint: read, change, write, with no other write in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CorruptCheckpoint,
    UnstorableValue,
)
from checkpointmanager.testing import damage

from ..leases import LEASES, NEW, OLD, Lease, LeaseManager


def longer(lease: Lease) -> Lease:
    return Lease(lease.holder, lease.seconds + 1, lease.tags)


def test_an_update_writes_what_the_function_returns(manager: LeaseManager) -> None:
    manager.create_checkpoint("a", OLD)

    updated = manager.update_checkpoint("a", longer)

    assert (updated.data.seconds, updated.generation, updated.unchanged) == (61, 2, False)
    assert manager.get_checkpoint("a") == updated


def test_a_missing_key_is_not_found_and_the_function_not_called(manager: LeaseManager) -> None:
    with pytest.raises(CheckpointNotFound):
        manager.update_checkpoint("a", lambda _: pytest.fail("called"))
    assert "a" not in manager


def test_the_function_may_mutate_its_argument(manager: LeaseManager) -> None:
    manager.create_checkpoint("a", OLD)

    def tag(lease: Lease) -> Lease:
        lease.tags.append("x")
        return lease

    manager.update_checkpoint("a", tag)

    assert manager.get_checkpoint("a").data.tags == ["x"]
    assert OLD.tags == []


def test_a_mutation_without_a_return_is_refused(manager: LeaseManager) -> None:
    manager.create_checkpoint("a", OLD)

    with pytest.raises(UnstorableValue, match="returned None"):
        manager.update_checkpoint("a", lambda lease: lease.tags.append("x"))  # type: ignore[arg-type, return-value]

    assert manager.get_checkpoint("a").data == OLD


def test_a_mutation_by_a_function_that_raises_is_not_written(manager: LeaseManager) -> None:
    manager.create_checkpoint("a", OLD)

    def fail(lease: Lease) -> Lease:
        lease.tags.append("x")
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        manager.update_checkpoint("a", fail)

    assert manager.get_checkpoint("a").generation == 1
    assert manager.get_checkpoint("a").data == OLD
    assert manager.create_checkpoint("a", OLD).unchanged, "nothing was attempted, so nothing is in doubt"


def test_an_update_that_changes_nothing_writes_nothing(manager: LeaseManager) -> None:
    manager.create_checkpoint("a", OLD)

    assert manager.update_checkpoint("a", lambda lease: lease).unchanged
    assert manager.get_checkpoint("a").generation == 1


def test_the_first_update_by_an_owner_is_written_even_if_it_changes_nothing(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
    with CheckpointManager(directory, LEASES) as manager:
        assert manager.update_checkpoint("a", lambda lease: lease).generation == 2


def test_a_value_that_cannot_be_stored_leaves_the_old_one(manager: LeaseManager) -> None:
    manager.create_checkpoint("a", OLD)

    with pytest.raises(UnstorableValue, match="seconds"):
        manager.update_checkpoint("a", lambda lease: Lease(lease.holder, 2**70))

    assert manager.get_checkpoint("a").data == OLD


@pytest.mark.parametrize("sharing", [False, True])
@pytest.mark.parametrize("key", ["a", "b"])
def test_a_change_function_must_not_write_because_two_of_them_could_wait_for_each_other(
    directory: Path, key: str, sharing: bool
) -> None:
    with CheckpointManager(directory, LEASES, sharing=sharing) as manager:
        manager.create_checkpoint("a", OLD)

        def nested(lease: Lease) -> Lease:
            manager.create_checkpoint(key, NEW)
            return lease

        def nested_batch(lease: Lease) -> Lease:
            with manager.batch() as batch:
                batch.remove_checkpoint(key)
            return lease

        for change in (nested, nested_batch):
            with pytest.raises(RuntimeError, match="must not make others"):
                manager.update_checkpoint("a", change)
        assert manager.get_checkpoint("a").data == OLD
        assert "b" not in manager
        manager.update_checkpoint("a", longer)


def test_a_damaged_checkpoint_is_not_updated(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    damage.flip_bit(directory, "a")

    with pytest.raises(CorruptCheckpoint):
        manager.update_checkpoint("a", longer)
