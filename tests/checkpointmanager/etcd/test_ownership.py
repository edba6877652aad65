"""One owner: a second one is refused, a dead one is replaced, and one that was replaced can change nothing."""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointCache,
    CheckpointManager,
    DirectoryLocked,
    LockOwner,
    Put,
    Reason,
    Replaces,
)
from checkpointmanager._etcd import operations
from checkpointmanager._etcd.client import Call, Client
from checkpointmanager._etcd.ownership import Ownership
from checkpointmanager._etcd.wire import RANGE, TXN, Method
from checkpointmanager.etcd import EtcdStore

from ..processes import LIMIT, run_together, until
from .agent import KEY, AgentProcess
from .conftest import Opening
from .history import History
from .servers import Cluster

Manager = CheckpointManager[Any]


def lose_the_lease(cluster: Cluster, store: EtcdStore) -> None:
    """As etcd does when it expires."""
    assert store._ownership.lease
    cluster.administer("lease/revoke", ID=str(store._ownership.lease.id))


def remove_the_lock(_: Cluster, store: EtcdStore) -> None:
    """By hand, as an operator in a hurry might."""
    store._client.ask(Call(5), TXN, operations.txn([], [operations.delete(store._layout.lock)]))


def test_a_second_owner_is_refused_and_shown_the_first(opening: Opening) -> None:
    opening(owner="node-7, first agent")
    with pytest.raises(DirectoryLocked) as refusal:
        opening()
    assert refusal.value.owner
    assert refusal.value.owner.label == "node-7, first agent"
    assert refusal.value.owner.pid == os.getpid()
    assert "locked by another owner: 'node-7, first agent'" in str(refusal.value)


def test_the_lock_is_free_at_once_when_the_owner_closes(opening: Opening) -> None:
    opening().close()
    assert opening().keys() == []


def test_waiting_for_the_lock_ends_when_it_is_given_back_and_asks_only_a_few_times(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opening()
    asked: list[str] = []
    watched = threading.Event()
    ask, watching = Client.ask, Client.watching

    def asking(client: Client, call: Call, method: Method, request: Any, **options: Any) -> Any:
        asked.append(method.path)
        return ask(client, call, method, request, **options)

    def watch(client: Client, request: Any, seconds: float) -> Any:
        watched.set()
        return watching(client, request, seconds)

    monkeypatch.setattr(Client, "ask", asking)
    monkeypatch.setattr(Client, "watching", watch)

    def close_when_another_waits() -> None:
        assert watched.wait(LIMIT)
        time.sleep(0.2)  # long enough for dozens of requests
        first.close()

    run_together(lambda: opening(lock_timeout=LIMIT), close_when_another_waits)
    assert asked.count(RANGE.path) <= 3


def test_waiting_for_the_lock_ends_when_the_time_is_up(opening: Opening) -> None:
    opening()
    with pytest.raises(DirectoryLocked, match=r"locked after waiting 0\.1 s by another owner"):
        opening(lock_timeout=0.1)


def test_waiting_without_a_limit_is_one_watch(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opening()
    watches: list[float] = []
    wait = Ownership._wait

    def waiting(ownership: Ownership, seen: int, seconds: float) -> None:
        watches.append(seconds)
        wait(ownership, seen, seconds)

    def close_when_another_waits() -> None:
        until(lambda: watches)
        time.sleep(0.3)  # long enough for several, if the first one broke
        first.close()

    monkeypatch.setattr(Ownership, "_wait", waiting)
    run_together(lambda: opening(lock_timeout=math.inf), close_when_another_waits)
    assert len(watches) == 1


def test_each_of_many_waiting_stores_becomes_the_owner_in_turn(opening: Opening) -> None:
    first = opening()
    owned: list[int] = []

    def own(number: int) -> None:
        store = opening(lock_timeout=LIMIT)
        owned.append(number)
        store.close()

    run_together(*(lambda number=number: own(number) for number in range(4)), first.close)
    assert sorted(owned) == [0, 1, 2, 3]


def test_the_lease_is_renewed_in_the_background(opening: Opening) -> None:
    store = opening(ttl=1)
    lease = store._ownership.lease
    assert lease
    assert lease.ttl == 1
    first = lease.renewed
    until(lambda: lease.renewed > first + lease.ttl)
    CheckpointManager(store).create_checkpoint("a", 1)


def _in_batch(manager: Manager) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("a", 5)
        batch.remove_checkpoint("b")


def _in_transaction(manager: Manager) -> None:
    with manager.transaction() as transaction:
        transaction.create_checkpoint("a", 5)
        transaction.remove_checkpoint("b")


CHANGES: dict[str, Callable[[Manager], object]] = {
    "create": lambda manager: manager.create_checkpoint("new", 1),
    "overwrite": lambda manager: manager.create_checkpoint("a", 5),
    "update": lambda manager: manager.update_checkpoint("a", lambda number: number + 1),
    "remove": lambda manager: manager.remove_checkpoint("a"),
    "batch": _in_batch,
    "transaction": _in_transaction,
    "recover": lambda manager: manager.recover_checkpoint("damaged"),
}


@pytest.mark.parametrize("lose", [lose_the_lease, remove_the_lock])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_store_that_has_lost_the_lock_changes_nothing_and_can_still_read(
    cluster: Cluster, opening: Opening, change: Callable[[Manager], object], lose: Callable[[Cluster, EtcdStore], None]
) -> None:
    store = opening()
    manager: Manager = CheckpointManager(store)
    for key in ("a", "b", "damaged"):
        manager.create_checkpoint(key, 1)
    good = store.read("damaged")
    store.commit([Put("damaged", good[:-1], 1, Replaces.DAMAGED)])
    lose(cluster, store)
    other: Manager = CheckpointManager(opening(owner="the other"))
    other.create_checkpoint("a", 70)
    before = {key: store.identity(key) for key in ("a", "b", "damaged", "new")}
    for _ in range(2):  # the second time it is known already
        with pytest.raises(DirectoryLocked) as refusal:
            change(manager)
    assert refusal.value.owner
    assert refusal.value.owner.label == "the other"
    assert {key: store.identity(key) for key in before} == before
    assert manager.get_checkpoint("a").data == 70
    other.create_checkpoint("b", 71)
    assert other.get_checkpoint("b").data == 71


def test_a_lost_lock_stays_lost_although_no_other_store_took_it(cluster: Cluster, opening: Opening) -> None:
    store = opening()
    manager: Manager = CheckpointManager(store)
    lose_the_lease(cluster, store)
    for _ in range(2):
        with pytest.raises(DirectoryLocked, match="close and open again"):
            manager.create_checkpoint("a", 1)
    with pytest.raises(DirectoryLocked):
        store.check_owner()  # without a change: it is remembered
    store.close()
    CheckpointManager(opening()).create_checkpoint("a", 1)


@pytest.mark.parametrize("jump", [-1e6, 1e6], ids=["forwards", "backwards"])
def test_a_clock_that_jumps_neither_costs_the_lock_nor_keeps_it(
    cluster: Cluster, opening: Opening, jump: float
) -> None:
    store = opening(ttl=60)
    manager: Manager = CheckpointManager(store)
    assert store._ownership.lease
    store._ownership.lease.renewed += jump  # as if the clock had jumped the other way since the last renewal
    manager.create_checkpoint("a", 1)
    lose_the_lease(cluster, store)
    other: Manager = CheckpointManager(opening(owner="the other"))
    with pytest.raises(DirectoryLocked):
        manager.create_checkpoint("a", 2)
    assert other.get_checkpoint("a").data == 1


def test_quarantine_is_refused_when_the_lock_is_lost(cluster: Cluster, opening: Opening) -> None:
    store = opening()
    store.commit([Put("a", b"rubbish", 1, Replaces.ABSENT)])
    lose_the_lease(cluster, store)
    with pytest.raises(DirectoryLocked):
        store.quarantine("a", Reason.NOT_JSON)
    assert store.quarantined() == {}


def test_the_thread_that_renews_the_lease_notices_and_logs_that_it_has_expired(
    cluster: Cluster, opening: Opening, caplog: pytest.LogCaptureFixture
) -> None:
    store = opening(ttl=1)
    lose_the_lease(cluster, store)
    lease = store._ownership.lease
    assert lease
    with caplog.at_level(logging.WARNING, "checkpointmanager"):
        until(lambda: lease.expired)
        until(lambda: "has expired" in caplog.text)
    with pytest.raises(DirectoryLocked):
        store.check_owner()


def test_a_cache_that_lost_the_lock_keeps_what_it_knew(cluster: Cluster, opening: Opening) -> None:
    store = opening()
    cache: CheckpointCache[int] = CheckpointCache(CheckpointManager(store))
    cache.put("a", 1)
    lose_the_lease(cluster, store)
    with pytest.raises(DirectoryLocked):
        cache.put("a", 2)
    assert cache["a"] == 1


def test_the_lock_of_an_owner_that_is_dropped_without_closing_expires(opening: Opening, cluster: Cluster) -> None:
    prefix = "/tests/dropped"
    EtcdStore(cluster.endpoints, prefix, ttl=1)
    gc.collect()
    opening(prefix=prefix, ttl=1, lock_timeout=None)  # by default a dead owner's lock is waited for


def test_the_lock_says_who_holds_it(cluster: Cluster, store: EtcdStore) -> None:
    name = f"{store._layout.prefix}/.lock".encode()
    (found,) = store._client.ask(Call(5), RANGE, RANGE.request(key=name)).kvs
    owner = LockOwner.parse(found.value)
    assert owner
    assert owner.pid == os.getpid()
    assert found.lease


def test_a_lock_that_was_written_by_hand_is_attached_to_its_lease_again(store: EtcdStore, opening: Opening) -> None:
    manager: Manager = CheckpointManager(store)
    by_hand = operations.put(store._layout.lock, b"who are you?")  # like etcdctl, without the lease
    store._client.ask(Call(5), TXN, operations.txn([], [by_hand]))
    for number in range(2):  # the first one notices it
        manager.create_checkpoint("a", number)
    store.close()
    opening()


def test_an_owner_stopped_past_its_time_to_live_is_refused_when_it_goes_on(cluster: Cluster, prefix: str) -> None:
    with AgentProcess("first", prefix, 1, cluster.endpoints) as first:
        first.follow(20)
        first.signal(signal.SIGSTOP)
        with AgentProcess("second", prefix, 1, cluster.endpoints) as second:
            second.follow(20)
            first.signal(signal.SIGCONT)
            first.follow(10_000)
            second.follow(20)
            last = second.done[-1]
    assert first.locked, "it went on beside the second one"
    assert first.done[-1] < second.done[0]
    writes = History(cluster.endpoints, prefix).writes()
    assert [write.data["number"] for write in writes if write.key == KEY][:last] == [*range(1, last + 1)]
    assert {(write.data["by"], write.holder) for write in writes} == {("first", "first"), ("second", "second")}
