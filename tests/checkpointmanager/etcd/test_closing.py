"""After close(), and in a forked child, every call is refused; closing waits for those that are running."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, ManagerClosed
from checkpointmanager.etcd import EtcdStore

from ..processes import LIMIT, in_forked_child, run_together

Manager = CheckpointManager[Any]


def test_a_forked_child_is_refused_and_the_parent_goes_on(store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    acts: list[Callable[[], object]] = [
        lambda: manager.get_checkpoint("a"),
        lambda: manager.create_checkpoint("a", 2),
        manager.list_checkpoints,
        manager.load,
    ]
    for act in acts:
        with pytest.raises(ManagerClosed, match="before a fork"):
            in_forked_child(act)
    assert in_forked_child(store.close) is None
    manager.create_checkpoint("a", 3)
    assert manager.get_checkpoint("a").data == 3


def test_after_close_every_call_is_refused_and_closing_again_is_fine(store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    store.close()
    store.close()
    acts: list[Callable[[], object]] = [
        lambda: manager.get_checkpoint("a"),
        lambda: manager.create_checkpoint("a", 2),
        lambda: "a" in manager,
        store.quarantined,
        lambda: store.commit([]),
    ]
    for act in acts:
        with pytest.raises(ManagerClosed):
            act()


def test_closing_waits_for_a_running_call(store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    inside, go_on = threading.Event(), threading.Event()

    def change(number: int) -> int:
        inside.set()
        assert go_on.wait(LIMIT)
        return number + 1

    def close() -> None:
        assert inside.wait(LIMIT)
        threading.Timer(0.05, go_on.set).start()
        store.close()
        assert go_on.is_set()

    run_together(lambda: manager.update_checkpoint("a", change), close)
