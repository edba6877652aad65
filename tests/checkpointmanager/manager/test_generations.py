"""Generations: above all earlier ones, wherever they can be learned from, and within limits."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import (
    BatchFailed,
    CheckpointManager,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    Reason,
    TransactionFailed,
)
from checkpointmanager.format import MAX_GENERATION, open_any, seal

from ..leases import LEASES, NEW, OLD, Lease, LeaseManager

OLD_3 = Lease("old", 3)

HEADER_ONLY = 250  # bytes: the header is whole, the data is cut


@pytest.fixture
def file(directory: Path, manager: LeaseManager) -> Path:
    """Generation 3, with generation 2 beside it."""
    for seconds in (1, 2, 3):
        manager.create_checkpoint("pod-7", Lease("old", seconds))
    return directory / "pod-7.json"


def _damage(file: Path, manager: LeaseManager, blob: bytes) -> None:
    file.write_bytes(blob)
    manager.verify()  # makes the manager forget what it knows of the key


@pytest.mark.parametrize(
    ("stated", "previous", "expected"),
    [(3, False, 4), (0, True, 4), (9, True, 10), (1, True, 4)],
    ids=[
        "by the damaged header",
        "by the previous generation",
        "by the header, which is higher",
        "the header is lower",
    ],
)
def test_the_highest_generation_that_is_stated_counts(
    file: Path, manager: LeaseManager, stated: int, previous: bool, expected: int
) -> None:
    blob = file.read_bytes().replace(b'"generation":3', b'"generation":%d' % stated)[:HEADER_ONLY]
    if not previous:
        file.with_name(".previous-pod-7").unlink()
    _damage(file, manager, blob if stated else b"\0" * 100)

    assert manager.create_checkpoint("pod-7", NEW).generation == expected


def reopened_without_a_trace(file: Path, manager: LeaseManager) -> LeaseManager:
    """Where neither the file nor what lies beside it states a generation."""
    manager.close()
    file.write_bytes(b"\0" * 100)
    file.with_name(".previous-pod-7").unlink()
    return CheckpointManager(file.parent, LEASES)


def test_it_starts_anew_where_nothing_is_known(file: Path, manager: LeaseManager) -> None:
    with reopened_without_a_trace(file, manager) as again:
        assert again.create_checkpoint("pod-7", NEW).generation == 1


def test_a_previous_generation_of_another_key_does_not_count(file: Path, manager: LeaseManager) -> None:
    for seconds in range(9):
        manager.create_checkpoint("other", Lease("other", seconds))
    with reopened_without_a_trace(file, manager) as again:
        file.with_name(".previous-pod-7").write_bytes(file.with_name("other.json").read_bytes())
        assert again.create_checkpoint("pod-7", NEW).generation == 1


def test_it_is_above_all_that_the_journal_may_bring_back(file: Path, manager: LeaseManager) -> None:
    _damage(file, manager, b"\0" * 100)
    file.with_name(".previous-pod-7").unlink()
    assert manager.create_checkpoint("pod-7", NEW).generation == 4

    manager.remove_checkpoint("pod-7")  # generation 5
    assert manager.create_checkpoint("pod-7", OLD).generation == 6


# The limits of a generation


def planted(file: Path, generation: int) -> None:
    """A checkpoint as a program without this library may write it."""
    header, data = open_any(file.read_bytes())
    file.write_bytes(seal(header._replace(generation=generation), bytes(data)))


@pytest.fixture
def closed(file: Path, manager: LeaseManager) -> Path:
    manager.close()
    return file


def test_the_last_generation_is_read_and_nothing_is_written_after_it(closed: Path) -> None:
    planted(closed, MAX_GENERATION)
    with CheckpointManager(closed.parent, LEASES) as manager:
        assert manager.get_checkpoint("pod-7").generation == MAX_GENERATION == 2**53 - 1
        changes: list[Callable[[], object]] = [
            lambda: manager.create_checkpoint("pod-7", NEW),
            lambda: manager.update_checkpoint("pod-7", lambda _: NEW),
            lambda: manager.remove_checkpoint("pod-7"),
        ]
        for change in changes:
            with pytest.raises(CheckpointWriteFailed, match="after which there is none") as failed:
                change()
            assert (failed.value.errno, failed.value.in_doubt) == (errno.EOVERFLOW, False)
        with pytest.raises(BatchFailed) as batch_failed, manager.batch() as batch:
            batch.create_checkpoint("pod-7", NEW)
            batch.create_checkpoint("other", NEW)
        assert batch_failed.value.failures.keys() == {"pod-7"}
        with pytest.raises(TransactionFailed), manager.transaction() as transaction:
            transaction.create_checkpoint("pod-7", NEW)
            transaction.remove_checkpoint("other")
        assert manager.get_checkpoint("other").data == NEW
        assert manager.get_checkpoint("pod-7").data == OLD_3


def test_one_before_the_last_generation_can_be_written_once(closed: Path) -> None:
    planted(closed, MAX_GENERATION - 1)
    with CheckpointManager(closed.parent, LEASES) as manager:
        assert manager.create_checkpoint("pod-7", NEW).generation == MAX_GENERATION
        with pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("pod-7", OLD)
        assert manager.get_checkpoint("pod-7").data == NEW


@pytest.mark.parametrize("generation", [MAX_GENERATION + 1, 2**63, 2**64 - 1, 0])
def test_a_generation_outside_the_limits_is_damage_and_can_be_replaced(closed: Path, generation: int) -> None:
    planted(closed, generation)
    with CheckpointManager(closed.parent, LEASES) as manager:
        with pytest.raises(CorruptCheckpoint) as damaged:
            manager.get_checkpoint("pod-7")
        assert damaged.value.reason is Reason.WRONG_SHAPE

        assert manager.create_checkpoint("pod-7", NEW).generation == 4, "above what generation 2 left behind"

        assert manager.get_checkpoint("pod-7").data == NEW
