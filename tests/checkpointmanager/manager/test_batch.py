"""Batches: many changes, each atomic; afterwards memory holds exactly what is durable. See test_several_changes.py."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from checkpointmanager import BatchFailed, CheckpointManager, CheckpointTooNew, CheckpointWriteFailed, Schema
from checkpointmanager import UnstorableValue as Unstorable
from checkpointmanager.testing import failing

from ..contents import names
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager


def test_a_large_batch_keeps_few_files_open(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        with manager.batch() as batch:
            for n in range(200):
                batch.create_checkpoint(f"k{n}", Lease("a", n))
        assert manager.verify().intact == 200
        assert names(real_directory, ".tmp-") == []


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


def test_a_failed_sync_of_the_journal_leaves_the_whole_batch_in_doubt(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("b", OLD)
        with failing(real_directory, "fdatasync"), pytest.raises(BatchFailed) as caught, manager.batch() as batch:
            batch.create_checkpoint("a", NEW)
            batch.remove_checkpoint("b")

        assert caught.value.in_doubt
        assert caught.value.failures.keys() == {"a", "b"}
        assert {key: found.data for key, found in manager.load().checkpoints.items()} == {"b": OLD}


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
        assert isinstance(caught.value.failures["large"], Unstorable)
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
