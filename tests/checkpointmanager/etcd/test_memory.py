"""What the store remembers of each key saves a read before a write, and is never trusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, Put, Replaces
from checkpointmanager._etcd import commit, last_seen, operations
from checkpointmanager._etcd.client import Call, Client
from checkpointmanager._etcd.last_seen import LastSeen, Seen
from checkpointmanager._etcd.wire import RANGE, TXN, Method
from checkpointmanager.etcd import EtcdStore

Manager = CheckpointManager[Any]


def alone(manager: Manager, number: int) -> None:
    manager.create_checkpoint("a", number)


def in_batch(manager: Manager, number: int) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("a", number)
        batch.create_checkpoint("b", number)


def in_transaction(manager: Manager, number: int) -> None:
    with manager.transaction() as transaction:
        transaction.create_checkpoint("a", number)
        transaction.create_checkpoint("b", number)


writes = pytest.mark.parametrize("write", [alone, in_batch, in_transaction])


@pytest.fixture(params=[commit.MAX_COMPARED, 1], ids=["", "more keys than can be compared"])
def manager(store: EtcdStore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Manager:
    monkeypatch.setattr(commit, "MAX_COMPARED", request.param)
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    return manager


@writes
def test_a_read_that_is_overtaken_by_a_write_does_not_choose_the_previous_generation(
    store: EtcdStore, manager: Manager, write: Callable[[Manager, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Client.ask
    overtaken: list[Any] = []

    def asking(client: Client, call: Call, method: Method, request: Any, **options: Any) -> Any:
        reply = ask(client, call, method, request, **options)
        if method is RANGE and not overtaken:
            overtaken.append(reply)
            manager.create_checkpoint("a", 2)
        return reply

    with monkeypatch.context() as patch:
        patch.setattr(Client, "ask", asking)
        store.read("a")  # returns what "a" was when it was asked for
    write(manager, 3)
    assert _previous(manager) == 2


@writes
def test_a_change_by_hand_is_noticed_and_becomes_the_previous_generation(
    store: EtcdStore, manager: Manager, write: Callable[[Manager, int], None]
) -> None:
    manager.create_checkpoint("a", 2)
    by_hand = operations.put(store._layout.current("a"), store.read("a", previous=True))
    store._client.ask(Call(5), TXN, operations.txn([], [by_hand]))
    write(manager, 3)
    assert manager.get_checkpoint("a").data == 3
    assert _previous(manager) == 1


@writes
def test_a_removal_by_hand_is_noticed_and_leaves_no_previous_generation(
    store: EtcdStore, manager: Manager, write: Callable[[Manager, int], None]
) -> None:
    manager.create_checkpoint("a", 2)
    store._client.ask(Call(5), TXN, operations.txn([], [operations.delete(store._layout.current("a"))]))
    write(manager, 3)
    assert manager.get_checkpoint("a").data == 3
    assert manager.previous_checkpoint("a") is None


def _previous(manager: Manager) -> Any:
    checkpoint = manager.previous_checkpoint("a")
    assert checkpoint
    return checkpoint.data


def test_a_transaction_of_many_keys_reads_what_it_cannot_compare(store: EtcdStore) -> None:
    keys = [f"k{number}" for number in range(commit.MAX_COMPARED + 1)]
    for blob in (b"1", b"2"):
        with store.writing():
            store.commit([Put(key, blob, 1, Replaces.WHOLE) for key in keys], together=True)
    by_hand = operations.put(store._layout.current("k7"), b"by hand")
    store._client.ask(Call(5), TXN, operations.txn([], [by_hand]))
    with store.writing():
        store.commit([Put(key, b"3", 1, Replaces.WHOLE) for key in keys], together=True)
    assert store.read("k7", previous=True) == b"by hand"
    assert store.read("k8", previous=True) == b"2"


def test_only_so_many_bytes_are_remembered_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_seen, "MAX_BYTES", 500)
    memory = LastSeen()
    for number in range(5):
        memory.keep(f"k{number}", Seen(number + 1, b"x" * 40))
    assert [memory.get(f"k{number}") is not None for number in range(5)] == [False, False, False, True, True]
    memory.forget("k3")
    memory.keep("k5", Seen(9, b"y" * 60))
    assert memory.get("k4") is not None
