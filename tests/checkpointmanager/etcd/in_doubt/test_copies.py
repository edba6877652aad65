"""Lost answers while a copy is made in quarantine or deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkpointmanager import CheckpointError, Reason
from checkpointmanager.etcd import EtcdStore

from ..line import Fate, Line, Request
from .changes import Manager


def test_a_copy_is_deleted_although_the_answer_is_lost(store: EtcdStore, line: Line) -> None:
    copy = store.quarantine("damaged", Reason.NOT_JSON)
    line.disturb(Fate.ANSWER_LOST)
    store.delete_copy(copy)
    assert store.quarantined() == {}


def _remove(manager: Manager) -> None:
    manager.remove_checkpoint("damaged")


def _remove_in_batch(manager: Manager) -> None:
    with manager.batch() as batch:
        batch.remove_checkpoint("damaged")
        batch.remove_checkpoint("a")


def _remove_in_transaction(manager: Manager) -> None:
    with manager.transaction() as transaction:
        transaction.remove_checkpoint("damaged")
        transaction.remove_checkpoint("a")


def _replace(manager: Manager) -> None:
    manager.create_checkpoint("damaged", 5)


@pytest.mark.parametrize("change", [_remove, _remove_in_batch, _remove_in_transaction, _replace])
def test_damaged_bytes_are_replaced_or_removed_only_after_a_copy_whichever_request_fails(
    store: EtcdStore, manager: Manager, line: Line, change: Callable[[Manager], None]
) -> None:
    for failing in range(20):
        before = len(line.sent)

        def fail_one(request: Request) -> Any:
            if len(line.sent) == before + failing + 1:  # noqa: B023 - called within the loop
                raise request.end_of_time()
            return request.send()

        line.carry = fail_one
        try:
            change(manager)
        except CheckpointError:
            assert len(line.sent) > before + failing
        line.mend()
        if not store.exists("damaged") or store.read("damaged") != b"rubbish":
            assert store.quarantined().get("damaged"), f"request {failing} failed, and no copy was made"
            return
    pytest.fail("it never succeeded")
