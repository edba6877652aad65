"""Lost answers while a copy is made in quarantine or deleted."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from checkpointmanager import CheckpointError, Reason
from checkpointmanager._etcd.client import Call, Client
from checkpointmanager._etcd.faults import NoAnswer
from checkpointmanager._etcd.wire import Method
from checkpointmanager.etcd import EtcdStore

from ..line import Fate, Line
from .changes import Manager


def test_a_copy_is_deleted_although_the_answer_is_lost(store: EtcdStore, manager: Manager) -> None:
    copy = store.quarantine("damaged", Reason.NOT_JSON)
    Line(store).disturb(Fate.ANSWER_LOST)
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
    store: EtcdStore, manager: Manager, monkeypatch: pytest.MonkeyPatch, change: Callable[[Manager], None]
) -> None:
    ask = Client.ask
    for failing in range(20):
        requests = 0

        def asking(client: Client, call: Call, method: Method, request: Any, **options: Any) -> Any:
            nonlocal requests
            requests += 1
            if requests == failing + 1:  # noqa: B023 - called within the loop
                raise NoAnswer(errno.ETIMEDOUT, "no answer")
            return ask(client, call, method, request, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Client, "ask", asking)
            try:
                change(manager)
            except CheckpointError:
                assert requests > failing
        if not store.exists("damaged") or store.read("damaged") != b"rubbish":
            assert store.quarantined().get("damaged"), f"request {failing} failed, and no copy was made"
            break
    else:
        pytest.fail("it never succeeded")
