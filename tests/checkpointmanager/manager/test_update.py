"""update_checkpoint: read, change, write, with no other write in between. And defaults where there is no checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, CheckpointNotFound, CorruptCheckpoint, InvalidKey, UnstorableValue
from checkpointmanager.testing import damage

from ..leases import LEASES, NEW, OLD, Lease, LeaseManager


def longer(lease: Lease) -> Lease:
    return replace(lease, seconds=lease.seconds + 1)


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


def fail(lease: Lease) -> Lease:
    lease.tags.append("x")
    raise RuntimeError("mine")


WITHOUT_RESULT: dict[str, tuple[Callable[[Lease], Lease], type[Exception], str, bool]] = {
    "no return": (lambda lease: lease.tags.append("x"), UnstorableValue, "returned None", True),  # type: ignore[dict-item, return-value]
    "an error": (fail, RuntimeError, "mine", True),
    "what cannot be stored": (lambda lease: replace(lease, seconds=2**70), UnstorableValue, "seconds", False),
}


@pytest.mark.parametrize("name", WITHOUT_RESULT)
def test_without_a_value_to_store_the_old_one_stays(manager: LeaseManager, name: str) -> None:
    change, error, text, certain = WITHOUT_RESULT[name]
    manager.create_checkpoint("a", OLD)

    with pytest.raises(error, match=text):
        manager.update_checkpoint("a", change)
    with pytest.raises(error, match=text):
        manager.update_checkpoint("b", change, Lease("default"))

    assert (manager.get_checkpoint("a").data, manager.get_checkpoint("a").generation) == (OLD, 1)
    assert "b" not in manager
    if certain:
        assert manager.create_checkpoint("a", OLD).unchanged, "nothing was attempted, so nothing is in doubt"


def test_an_update_that_changes_nothing_is_written_only_by_an_owner_that_has_not_written_the_key(
    directory: Path,
) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        assert manager.update_checkpoint("a", lambda lease: lease).unchanged
    with CheckpointManager(directory, LEASES) as manager:
        assert manager.update_checkpoint("a", lambda lease: lease).generation == 2


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

        def nested_transaction(lease: Lease) -> Lease:
            with manager.transaction() as transaction:
                transaction.update_checkpoint(key, nested, OLD)
            return lease

        for change in (nested, nested_batch, nested_transaction):
            with pytest.raises(RuntimeError, match="must not make others"):
                manager.update_checkpoint("a", change)
        assert manager.get_checkpoint("a").data == OLD
        assert "b" not in manager
        manager.update_checkpoint("a", longer)


# Defaults


@pytest.mark.parametrize("default", [None, 0, OLD], ids=repr)
def test_get_returns_the_default_for_a_missing_checkpoint_only(manager: LeaseManager, default: object) -> None:
    assert manager.get_checkpoint("a", default) is default
    manager.create_checkpoint("a", NEW)
    assert manager.get_checkpoint("a", default) == manager.get_checkpoint("a")


def test_a_default_replaces_no_other_error(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    damage.flip_bit(directory, "a")
    damaged = (directory / "a.json").read_bytes()

    with pytest.raises(CorruptCheckpoint):
        manager.get_checkpoint("a", None)
    with pytest.raises(CorruptCheckpoint):
        manager.update_checkpoint("a", longer, OLD)
    with pytest.raises(InvalidKey):
        manager.get_checkpoint("", None)
    assert (directory / "a.json").read_bytes() == damaged


def test_update_creates_a_missing_checkpoint_from_the_changed_default(manager: LeaseManager, directory: Path) -> None:
    for generation, seconds in ((1, 61), (2, 62)):
        created = manager.update_checkpoint("a", longer, OLD)
        assert (created.data.seconds, created.generation) == (seconds, generation)
    (directory / "a.json").unlink()
    assert not manager.update_checkpoint("a", lambda _: replace(OLD, seconds=62), OLD).unchanged
    assert manager.get_checkpoint("a").data.seconds == 62


def test_update_hands_none_to_the_change_if_that_is_the_default(manager: LeaseManager) -> None:
    seen: list[Lease | None] = []

    def change(lease: Lease | None) -> Lease:
        seen.append(lease)
        return NEW if lease else OLD

    assert [manager.update_checkpoint("a", change, None).data for _ in range(2)] == [OLD, NEW]
    assert seen == [None, OLD]
