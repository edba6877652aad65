"""A batch in pieces: each key has the error of its own piece, and nothing is tried in vain."""

from __future__ import annotations

import errno

import pytest

from checkpointmanager import BatchFailed, CheckpointWriteFailed, DirectoryLocked, Put, Replaces
from checkpointmanager.etcd import EtcdStore

from ..client import Etcd
from ..conftest import lose_the_lease
from ..line import TRIES, Fate, Line, Request
from .changes import Manager


def _create(manager: Manager, count: int) -> BatchFailed:
    """The error of a batch of new keys."""
    with pytest.raises(BatchFailed) as failure, manager.batch() as batch:
        for number in range(count):
            batch.create_checkpoint(f"k{number}", number)
    return failure.value


def _keys(*numbers: int) -> set[str]:
    return {f"k{number}" for number in range(*numbers)}


@pytest.mark.parametrize("made", [0, 1], ids=["the first piece", "the second piece"])
def test_only_the_piece_that_got_no_answer_is_in_doubt_and_those_after_it_are_not_even_tried(
    manager: Manager, line: Line, made: int
) -> None:
    line.disturb(*[None] * made, until_time_is_up=Fate.LOST)
    failure = _create(manager, 200)
    assert {*failure.failures} == _keys(60 * made, 200)
    in_doubt = {key for key, error in failure.failures.items() if getattr(error, "in_doubt", False)}
    assert in_doubt == _keys(60 * made, 60 * made + 60)
    changes = [name for name in line.sent if name == "Txn"][4:]  # 200 keys and previous generations, in two pages each
    assert len(changes) == made + TRIES
    line.mend()
    assert {key for key in manager.list_checkpoints() if key.startswith("k")} == _keys(60 * made)


def test_a_lock_lost_in_the_midst_of_a_batch_is_the_error_of_what_was_not_made(
    manager: Manager, line: Line, etcd: Etcd, prefix: str
) -> None:
    def lose_after_the_first_piece(request: Request) -> object:
        reply = request.send()
        if request.is_change:
            line.mend()
            lose_the_lease(etcd, prefix)
        return reply

    line.carry = lose_after_the_first_piece
    failure = _create(manager, 150)
    assert {*failure.failures} == _keys(60, 150)
    assert not failure.in_doubt
    assert failure.errno == errno.ENOLCK
    with pytest.raises(DirectoryLocked):
        manager.create_checkpoint("k1", 1)


def test_when_the_lock_cannot_be_written_again_each_error_says_why_and_the_rest_of_a_batch_is_not_even_tried(
    store: EtcdStore, manager: Manager, line: Line
) -> None:
    line.disturb(until_time_is_up=Fate.LOST)
    with pytest.raises(CheckpointWriteFailed):
        manager.create_checkpoint("a", 2)
    del line.sent[:]
    failures = store.commit([Put(f"k{number}", b"", 1, Replaces.ABSENT) for number in range(200)])
    assert len(failures) == 200
    assert all("no answer within 30 s" in str(error) and not error.in_doubt for error in failures.values())
    assert line.sent == ["Txn"] * TRIES
