"""A batch in pieces: each key has the error of its own piece, and nothing is tried in vain."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from checkpointmanager import BatchFailed, CheckpointWriteFailed, DirectoryLocked, Put, Replaces
from checkpointmanager.etcd import EtcdStore

from ..line import Fate, Line
from ..servers import Cluster
from .changes import LIMIT, Manager


def test_of_a_batch_in_pieces_only_the_piece_that_failed_is_in_doubt(store: EtcdStore, manager: Manager) -> None:
    line = Line(store)
    store._timeout = 2 * LIMIT
    fates = [None, *[Fate.LOST] * 100]
    line.disturb(*fates, always=Fate.LOST)
    with pytest.raises(BatchFailed) as failure, manager.batch() as batch:
        for number in range(100):
            batch.create_checkpoint(f"k{number}", number)
    failed = set(failure.value.failures)
    assert failed == {f"k{number}" for number in range(60, 100)}
    line.mend()
    assert {key for key in manager.list_checkpoints() if key.startswith("k")} == {f"k{number}" for number in range(60)}


def test_when_no_member_answers_the_rest_of_a_batch_is_not_even_tried(
    store: EtcdStore, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(store)
    tried = _tried(store, monkeypatch)
    store._timeout = 2 * LIMIT
    line.disturb(always=Fate.LOST)
    with pytest.raises(BatchFailed) as failure, manager.batch() as batch:
        for number in range(200):
            batch.create_checkpoint(f"k{number}", number)
    in_doubt = {key for key, error in failure.value.failures.items() if getattr(error, "in_doubt", False)}
    assert in_doubt == {f"k{number}" for number in range(60)}
    assert len(failure.value.failures) == 200
    assert len(tried) == 1


def _tried(store: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pieces of batches that are tried from now on."""
    make = store._commits._make
    tried: list[Any] = []

    def making(call: Any, piece: Any) -> None:
        tried.append(piece)
        make(call, piece)

    monkeypatch.setattr(store._commits, "_make", making)
    return tried


def test_a_lock_lost_in_the_midst_of_a_batch_is_the_error_of_what_was_not_made(
    cluster: Cluster, store: EtcdStore, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = store._commits._make

    def make_and_lose(call: Any, piece: Any) -> None:
        make(call, piece)
        assert store._ownership.lease
        cluster.administer("lease/revoke", ID=str(store._ownership.lease.id))

    monkeypatch.setattr(store._commits, "_make", make_and_lose)
    with pytest.raises(BatchFailed) as failure, manager.batch() as batch:
        for number in range(150):
            batch.create_checkpoint(f"k{number}", number)
    assert set(failure.value.failures) == {f"k{number}" for number in range(60, 150)}
    assert not failure.value.in_doubt
    assert failure.value.errno == errno.ENOLCK
    with pytest.raises(DirectoryLocked):
        manager.create_checkpoint("k1", 1)


def test_when_the_lock_cannot_be_written_again_each_error_says_why_and_the_rest_of_a_batch_is_not_even_tried(
    store: EtcdStore, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(store)
    store._timeout = LIMIT
    line.disturb(always=Fate.LOST)
    with pytest.raises(CheckpointWriteFailed):
        manager.create_checkpoint("a", 2)
    tried = _tried(store, monkeypatch)
    failures = store.commit([Put(f"k{number}", b"", 1, Replaces.ABSENT) for number in range(200)])
    assert len(failures) == 200
    assert all("no answer within 0.5 s" in str(error) and not error.in_doubt for error in failures.values())
    assert len(tried) == 1
