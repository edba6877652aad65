"""One owner: a second one is refused, a dead one is replaced, and one that was replaced can change nothing."""

from __future__ import annotations

import gc
import math
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointManager,
    DirectoryLocked,
    LockOwner,
    Put,
    Reason,
    Replaces,
)
from checkpointmanager.etcd import EtcdStore

from ..processes import LIMIT, run_together, until
from .agent import KEY, AgentProcess
from .client import Etcd
from .conftest import Opening, lose_the_lease
from .history import History
from .line import Line, Request
from .servers import Cluster

Manager = CheckpointManager[Any]


def remove_the_lock(etcd: Etcd, prefix: str) -> None:
    """By hand, as an operator in a hurry might."""
    etcd.delete(f"{prefix}/.lock")


def test_a_second_owner_is_refused_and_shown_the_first(opening: Opening) -> None:
    opening(owner="node-7, first agent")
    with pytest.raises(DirectoryLocked) as refusal:
        opening()
    assert refusal.value.owner
    assert refusal.value.owner.label == "node-7, first agent"
    assert refusal.value.owner.pid == os.getpid()
    assert "locked by another owner: 'node-7, first agent'" in str(refusal.value)


@pytest.mark.parametrize("limit", [LIMIT, math.inf], ids=["with a limit", "without a limit"])
def test_waiting_for_the_lock_is_one_watch_and_ends_when_it_is_given_back(
    opening: Opening, line: Line, limit: float
) -> None:
    first = opening()
    del line.sent[:]

    def close_when_another_waits() -> None:
        until(lambda: line.watches)
        first.check_owner()
        first.close()

    run_together(lambda: opening(lock_timeout=limit), close_when_another_waits)
    assert len(line.watches) == 1
    assert line.sent.count("Range") <= 3, "it looks before and after the watch"


def test_waiting_for_the_lock_ends_when_the_time_is_up(opening: Opening) -> None:
    opening()
    with pytest.raises(DirectoryLocked, match=r"locked after waiting 0\.1 s by another owner"):
        opening(lock_timeout=0.1)


def test_each_of_many_waiting_stores_becomes_the_owner_in_turn(opening: Opening) -> None:
    first = opening()
    owned: list[int] = []

    def own(number: int) -> None:
        store = opening(lock_timeout=LIMIT)
        owned.append(number)
        store.close()

    run_together(*(lambda number=number: own(number) for number in range(4)), first.close)
    assert sorted(owned) == [0, 1, 2, 3]


def test_the_lease_is_renewed_in_the_background(opening: Opening, line: Line) -> None:
    left: list[int] = []

    def note_renewals(request: Request) -> Any:
        reply = request.send()
        if request.name == "LeaseKeepAlive":
            left.append(reply.TTL)
        return reply

    line.carry = note_renewals
    opening(ttl=2)
    until(lambda: len(left) == 4)  # more than two seconds, because it is renewed three times per time to live
    assert left == [2, 2, 2, 2]


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


@pytest.fixture
def damaged(opening: Opening) -> EtcdStore:
    """A store with checkpoints a, b and damaged."""
    store = opening()
    manager: Manager = CheckpointManager(store)
    for key in ("a", "b", "damaged"):
        manager.create_checkpoint(key, 1)
    good = store.read("damaged")
    store.commit([Put("damaged", good[:-1], 1, Replaces.DAMAGED)])
    return store


@pytest.fixture(params=[lose_the_lease, remove_the_lock])
def lose(request: pytest.FixtureRequest, etcd: Etcd, prefix: str) -> Callable[[], None]:
    return lambda: request.param(etcd, prefix)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_store_that_has_lost_the_lock_changes_nothing_and_can_still_read(
    damaged: EtcdStore, opening: Opening, change: Callable[[Manager], object], lose: Callable[[], None]
) -> None:
    manager: Manager = CheckpointManager(damaged)
    lose()
    other: Manager = CheckpointManager(opening(owner="the other"))
    other.create_checkpoint("a", 70)
    before = dict(damaged.snapshot())
    for _ in range(2):  # the second time it is known already
        with pytest.raises(DirectoryLocked) as refusal:
            change(manager)
    assert refusal.value.owner
    assert refusal.value.owner.label == "the other"
    assert dict(damaged.snapshot()) == before
    assert manager.get_checkpoint("a").data == 70
    other.create_checkpoint("b", 71)
    assert other.get_checkpoint("b").data == 71


def test_a_lost_lock_stays_lost_although_no_other_store_took_it(opening: Opening, etcd: Etcd, prefix: str) -> None:
    store = opening()
    manager: Manager = CheckpointManager(store)
    lose_the_lease(etcd, prefix)
    for _ in range(2):
        with pytest.raises(DirectoryLocked, match="close and open again"):
            manager.create_checkpoint("a", 1)
    with pytest.raises(DirectoryLocked):
        store.check_owner()  # without a change: it is remembered
    store.close()
    CheckpointManager(opening()).create_checkpoint("a", 1)


@pytest.mark.parametrize("jump", [-1e6, 1e6], ids=["forwards", "backwards"])
def test_a_clock_that_jumps_neither_costs_the_lock_nor_keeps_it(
    opening: Opening, etcd: Etcd, prefix: str, jump: float
) -> None:
    store = opening(ttl=60)
    manager: Manager = CheckpointManager(store)
    assert store._ownership.lease
    store._ownership.lease.renewed += jump  # as if the clock had jumped the other way since the last renewal
    manager.create_checkpoint("a", 1)
    lose_the_lease(etcd, prefix)
    other: Manager = CheckpointManager(opening(owner="the other"))
    with pytest.raises(DirectoryLocked):
        manager.create_checkpoint("a", 2)
    assert other.get_checkpoint("a").data == 1


def test_no_copy_is_made_or_deleted_when_the_lock_is_lost(damaged: EtcdStore, lose: Callable[[], None]) -> None:
    copy = damaged.quarantine("damaged", Reason.NOT_JSON)
    assert damaged.commit([Put("damaged", b"rubbish", 1, Replaces.DAMAGED)]) == {}
    lose()
    for act in (lambda: damaged.quarantine("damaged", Reason.NOT_JSON), lambda: damaged.delete_copy(copy)):
        with pytest.raises(DirectoryLocked):
            act()
    assert damaged.quarantined() == {"damaged": [copy]}


def test_the_lock_of_an_owner_that_is_dropped_without_closing_expires(opening: Opening, cluster: Cluster) -> None:
    prefix = "/tests/dropped"
    EtcdStore(cluster.endpoints, prefix, ttl=1)
    gc.collect()
    opening(prefix=prefix, ttl=1, lock_timeout=None)  # by default a dead owner's lock is waited for


def test_the_lock_says_who_holds_it_and_an_owner_whose_lock_was_changed_by_hand_has_lost_it(
    store: EtcdStore, etcd: Etcd, prefix: str
) -> None:
    lock = etcd.get(f"{prefix}/.lock")
    assert lock
    assert lock.lease
    owner = LockOwner.parse(lock.value)
    assert owner
    assert owner.pid == os.getpid()
    etcd.put(f"{prefix}/.lock", b"who are you?")  # like etcdctl, without the lease
    with pytest.raises(DirectoryLocked, match="the lock was changed"):
        CheckpointManager(store).create_checkpoint("a", 1)


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
    writes = History(cluster.etcd, prefix).writes()
    assert [write.data["number"] for write in writes if write.key == KEY][:last] == [*range(1, last + 1)]
    assert {(write.data["by"], write.holder) for write in writes} == {("first", "first"), ("second", "second")}
