"""Batches and transactions collect several changes in a block, and make them at its end; a batch makes each alone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    BatchFailed,
    CheckpointManager,
    CheckpointTooNew,
    CheckpointWriteFailed,
    InvalidKey,
    Schema,
    UnstorableValue,
)
from checkpointmanager.testing import damage, failing

from ..contents import names, quarantined
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager

Collect = Callable[[LeaseManager], Any]  # what `with` takes


@pytest.fixture(params=["batch", "transaction"])
def collect(request: pytest.FixtureRequest) -> Collect:
    return lambda manager: getattr(manager, request.param)()


def loaded(manager: LeaseManager) -> dict[str, Lease]:
    return {key: found.data for key, found in manager.load().checkpoints.items()}


def test_it_creates_and_removes_when_the_block_ends(manager: LeaseManager, collect: Collect, directory: Path) -> None:
    manager.create_checkpoint("going", OLD)

    with collect(manager) as changes:
        changes.create_checkpoint("a", OLD)
        changes.create_checkpoint("b", NEW)
        changes.remove_checkpoint("going")
        changes.remove_checkpoint("never-there")
        assert len(changes) == 4
        assert list(manager) == ["going"], "nothing happens before the block ends"

    assert loaded(manager) == {"a": OLD, "b": NEW}
    manager.close()
    assert names(directory) == [".lock", "a.json", "b.json"]


def test_the_last_change_of_a_key_counts(manager: LeaseManager, collect: Collect) -> None:
    with collect(manager) as changes:
        changes.create_checkpoint("a", OLD)
        changes.create_checkpoint("a", NEW)
        changes.create_checkpoint("b", OLD)
        changes.remove_checkpoint("b")

    assert loaded(manager) == {"a": NEW}
    assert manager.get_checkpoint("a").generation == 1


def test_what_is_changed_after_the_call_is_not_written(manager: LeaseManager, collect: Collect) -> None:
    lease = Lease("a")
    with collect(manager) as changes:
        changes.create_checkpoint("a", lease)
        changes.create_checkpoint("b", NEW)
        lease.tags.append("late")

    assert manager.get_checkpoint("a").data.tags == []


def test_an_empty_one_touches_nothing(manager: LeaseManager, collect: Collect, directory: Path) -> None:
    with collect(manager):
        pass
    assert names(directory) == [".lock"]


def test_a_block_that_raises_changes_nothing(manager: LeaseManager, collect: Collect, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    before = {name: (directory / name).read_bytes() for name in names(directory)}

    with pytest.raises(RuntimeError, match="mine"), collect(manager) as changes:
        changes.create_checkpoint("b", NEW)
        changes.remove_checkpoint("a")
        raise RuntimeError("mine")

    assert {name: (directory / name).read_bytes() for name in names(directory)} == before


def test_a_bad_key_or_value_is_refused_at_once(manager: LeaseManager, collect: Collect) -> None:
    changes = collect(manager)
    with pytest.raises(InvalidKey):
        changes.create_checkpoint("", OLD)
    with pytest.raises(InvalidKey):
        changes.remove_checkpoint("")
    with pytest.raises(UnstorableValue):
        changes.create_checkpoint("a", Lease("a", 2**70))
    assert len(changes) == 0


def test_what_is_the_same_is_not_written_again(manager: LeaseManager, collect: Collect, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    inode = os.stat(directory / "a.json").st_ino

    with collect(manager) as changes:
        changes.create_checkpoint("a", OLD)
        changes.create_checkpoint("b", OLD)

    assert os.stat(directory / "a.json").st_ino == inode
    assert manager.create_checkpoint("b", OLD).unchanged, "what it wrote is known as well"


def test_damaged_bytes_are_kept_before_they_are_replaced_or_removed(
    manager: LeaseManager, collect: Collect, directory: Path
) -> None:
    for key in "ab":
        manager.create_checkpoint(key, Lease(f"oldest {key}"))
        manager.create_checkpoint(key, OLD)
    manager.close()
    for key in "ab":
        damage.ruin(directory, key)
    bad = {(directory / f"{key}.json").read_bytes() for key in "ab"}

    with CheckpointManager(directory, LEASES) as again:
        with collect(again) as changes:
            changes.create_checkpoint("a", NEW)
            changes.remove_checkpoint("b")

        assert set(quarantined(directory)) == bad
        assert loaded(again) == {"a": NEW}
        previous = again.previous_checkpoint("a")
        assert previous
        assert previous.data == Lease("oldest a"), "the damaged generation does not become the previous one"


# Of a batch each change is made alone, and afterwards memory holds exactly what is durable.


@pytest.mark.parametrize("sharing", [False, True])
def test_what_failed_is_listed_and_all_else_is_durable_and_remembered(real_directory: Path, sharing: bool) -> None:
    with CheckpointManager(real_directory, LEASES, sharing=sharing) as manager:
        manager.create_checkpoint("b", OLD)
        with (
            failing(real_directory, "write", errno.ENOSPC, nth=2),
            pytest.raises(BatchFailed, match="1 of the batch failed") as caught,
            manager.batch() as batch,
        ):
            for key in "abc":
                batch.create_checkpoint(key, NEW)

        failure = caught.value.failures["b"]
        assert list(caught.value.failures) == ["b"]
        assert isinstance(failure, CheckpointWriteFailed)
        assert (failure.errno, failure.in_doubt, failure.key) == (errno.ENOSPC, False, "b")
        assert (caught.value.errno, caught.value.in_doubt) == (errno.ENOSPC, False)
        assert [manager.get_checkpoint(key).data for key in "abc"] == [NEW, OLD, NEW]
        if not sharing:
            assert [manager.create_checkpoint(key, NEW).unchanged for key in "abc"] == [True, False, True]
        assert names(real_directory, ".tmp-") == []


def test_a_removal_that_failed_in_a_shared_directory_is_listed(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES, sharing=True) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("b", OLD)
        with (
            failing(real_directory, "unlink", errno.EACCES, about="b.json"),
            pytest.raises(BatchFailed) as caught,
            manager.batch() as batch,
        ):
            batch.remove_checkpoint("a")
            batch.remove_checkpoint("b")

        assert list(caught.value.failures) == ["b"]
        assert (caught.value.errno, caught.value.in_doubt) == (errno.EACCES, False)
        assert list(manager) == ["b"]


def test_a_checkpoint_of_a_newer_program_fails_alone(directory: Path) -> None:
    with CheckpointManager(directory, Schema("Lease", 2, type=Lease)) as manager:
        manager.create_checkpoint("newer", OLD)

    with CheckpointManager(directory, LEASES, max_bytes=300) as manager:
        with pytest.raises(BatchFailed) as caught, manager.batch() as batch:
            batch.create_checkpoint("newer", NEW)
            batch.create_checkpoint("large", Lease("x" * 300))
            batch.create_checkpoint("fine", NEW)

        assert isinstance(caught.value.failures["newer"], CheckpointTooNew)
        assert isinstance(caught.value.failures["large"], UnstorableValue)
        assert len(caught.value.failures) == 2
        assert manager.get_checkpoint("fine").data == NEW
        assert manager.list_checkpoints() == ["fine", "newer"]


def test_a_batch_may_be_used_again(manager: LeaseManager) -> None:
    batch = manager.batch()
    with batch:
        batch.create_checkpoint("a", OLD)
    with batch:
        batch.create_checkpoint("b", OLD)

    assert list(manager) == ["a", "b"]
