"""Lost answers while a copy in quarantine is put back or deleted."""

from __future__ import annotations

from checkpointmanager import Reason
from checkpointmanager.etcd import EtcdStore

from ..line import Fate, Line
from .changes import Manager


def test_a_copy_is_put_back_once_and_deleted_although_answers_are_lost(store: EtcdStore, manager: Manager) -> None:
    copy = store.quarantine("damaged", Reason.NOT_JSON)
    manager.create_checkpoint("damaged", 5)
    replaced = store.read("damaged")
    line = Line(store)
    line.disturb(Fate.ANSWER_LOST)
    kept = store.restore_copy(copy)
    assert store.read("damaged") == b"rubbish"
    assert dict(store.snapshot())[kept.removeprefix(f"{store.path}/")] == replaced
    assert store.quarantined() == {"damaged": [copy, kept]}
    line.disturb(Fate.ANSWER_LOST)
    store.delete_copy(copy)
    assert store.quarantined() == {"damaged": [kept]}


def test_a_copy_that_was_put_back_after_a_lost_answer_and_then_removed_does_not_come_back(
    store: EtcdStore, manager: Manager
) -> None:
    copy = store.quarantine("damaged", Reason.NOT_JSON)
    manager.remove_checkpoint("damaged")
    line = Line(store)
    line.disturb(Fate.LATE)
    assert store.restore_copy(copy) == ""  # the second attempt makes it, while the first is still on its way
    manager.remove_checkpoint("damaged")
    assert line.deliver() == [False]
    assert "damaged" not in manager
