"""An etcd that lost acknowledged state: restored from a backup, or with an empty disk, or another cluster.

Owner and readers get an error of its own, and nothing is acknowledged that is not there.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointError, CheckpointManager, CheckpointWriteFailed, Put, Remove, Replaces
from checkpointmanager._etcd import operations
from checkpointmanager._etcd.client import Call, Client
from checkpointmanager._etcd.ownership import Ownership
from checkpointmanager._etcd.wire import TXN, Method
from checkpointmanager.etcd import EtcdStore, EtcdWentBack

from ..processes import LIMIT, run_together, until
from .servers import Cluster, Member, any_etcd, ask, every_etcd, version_of

Manager = CheckpointManager[Any]
PREFIX = "/agents/node-7"
LOST = "compare it with the hardware, then close the store and open another"


@pytest.fixture(params=every_etcd(), ids=version_of)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(request.param or any_etcd(), tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def member(cluster: Cluster) -> Member:
    return cluster.members[0]


@pytest.fixture
def opened(cluster: Cluster) -> Iterator[Callable[..., EtcdStore]]:
    """Opens stores whose leases need no renewal, and closes them while etcd still runs."""
    with ExitStack() as stack:

        def open_store(**options: Any) -> EtcdStore:
            store = EtcdStore(cluster.endpoints, PREFIX, **{"ttl": 600, "timeout": 10, "lock_timeout": 0, **options})
            stack.callback(store.close)
            return store

        yield open_store


def _restore(cluster: Cluster, backup: Path) -> None:
    cluster.members[0].restore(cluster.program, backup)
    cluster.wait_for(cluster.members[0])


def _lose_everything(cluster: Cluster, *arguments: str) -> None:
    cluster.members[0].lose(cluster.program, *arguments)
    cluster.wait_for(cluster.members[0])


def _write_elsewhere(member: Member, count: int) -> None:
    for number in range(count):
        ask(member.endpoint, TXN, operations.txn([], [operations.put(b"/elsewhere", b"%d" % number)]))


def _batch(manager: Manager) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("a", 5)
        batch.create_checkpoint("b", 5)


def _transaction(manager: Manager) -> None:
    with manager.transaction() as transaction:
        transaction.create_checkpoint("a", 5)
        transaction.create_checkpoint("b", 5)


ACTS: list[Callable[[Manager], object]] = [
    lambda manager: manager.load(),
    lambda manager: manager.list_checkpoints(),
    lambda manager: manager.get_checkpoint("a"),
    lambda manager: manager.create_checkpoint("a", 5),
    lambda manager: manager.update_checkpoint("a", lambda number: number + 1),
    lambda manager: manager.remove_checkpoint("removed"),
    _batch,
    _transaction,
]


def test_after_a_restore_the_owner_and_its_readers_see_no_old_value_and_write_nothing(
    cluster: Cluster, member: Member, opened: Callable[..., EtcdStore]
) -> None:
    manager: Manager = CheckpointManager(opened())
    manager.create_checkpoint("removed", 1)
    manager.create_checkpoint("a", 1)
    reader: Manager = CheckpointManager(opened(read_only=True))
    backup = member.save(cluster.program)
    manager.create_checkpoint("a", 2)
    manager.remove_checkpoint("removed")
    assert reader.get_checkpoint("a").data == 2
    _restore(cluster, backup)
    for one in (reader, manager):
        with pytest.raises(EtcdWentBack, match=LOST):
            one.get_checkpoint("a")
    _write_elsewhere(member, 20)  # the revision is higher than ever, and what was lost is still lost
    for act in ACTS:
        with pytest.raises(EtcdWentBack, match="etcd went back from revision"):
            act(manager)
    for act in ACTS[:3]:
        with pytest.raises(EtcdWentBack):
            act(reader)
    manager.close()
    again: Manager = CheckpointManager(opened())
    assert {key: found.data for key, found in again.load().checkpoints.items()} == {"a": 1, "removed": 1}


def test_a_write_that_etcd_makes_in_an_older_state_is_in_doubt(
    cluster: Cluster, member: Member, opened: Callable[..., EtcdStore]
) -> None:
    manager: Manager = CheckpointManager(opened())
    manager.create_checkpoint("a", 1)
    backup = member.save(cluster.program)
    _write_elsewhere(member, 20)
    manager.create_checkpoint("b", 1)  # its owner has seen a revision that the backup does not have
    _restore(cluster, backup)
    with pytest.raises(CheckpointWriteFailed, match="etcd went back from revision") as failure:
        manager.create_checkpoint("a", 2)
    assert failure.value.in_doubt
    with pytest.raises(EtcdWentBack):
        manager.create_checkpoint("a", 3)


def test_an_owner_from_before_the_disk_was_lost_writes_nothing_under_the_lock_of_the_next(
    cluster: Cluster, opened: Callable[..., EtcdStore]
) -> None:
    old = opened()  # the first change of all: its lock is created at the same revision as the next owner's
    assert old.commit([Put("a", b"old", 1, Replaces.ABSENT)]) == {}
    assert old.commit([Remove("a", 9)]) == {}
    hold = old._ownership.hold
    _lose_everything(cluster)
    new = opened()
    assert new._ownership.hold[:2] == hold[:2], "only the lease tells them apart"
    for _ in range(3):
        with pytest.raises(EtcdWentBack):
            old.commit([Put("a", b"old again", 1, Replaces.ABSENT)])
    assert new.keys() == []
    assert new.commit([Put("a", b"new", 1, Replaces.ABSENT)]) == {}


def test_the_lease_alone_keeps_out_an_owner_from_before(
    cluster: Cluster, member: Member, opened: Callable[..., EtcdStore]
) -> None:
    old = opened()
    _lose_everything(cluster)
    new = opened()
    request = operations.txn(
        old._ownership.comparisons(old._ownership.hold), [operations.put(old._layout.current("a"), b"old")]
    )
    assert not ask(member.endpoint, TXN, request).succeeded
    assert new.keys() == []


@pytest.mark.parametrize("overtaken", [0, 50], ids=["", "and the revision is higher than before"])
def test_a_lock_that_is_older_than_the_owner_wrote_it_is_noticed_at_once(
    cluster: Cluster,
    member: Member,
    opened: Callable[..., EtcdStore],
    monkeypatch: pytest.MonkeyPatch,
    overtaken: int,
) -> None:
    store = opened()
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    backup = member.save(cluster.program)
    store._ownership.doubt(store._ownership.hold)  # as after a lost answer: the next change writes the lock again
    manager.create_checkpoint("a", 2)
    _restore(cluster, backup)
    _write_elsewhere(member, overtaken)
    asked: list[str] = []
    ask_one = Client._ask_one

    def asking(client: Client, call: Call, number: int, method: Method, request: Any) -> Any:
        asked.append(method.path)
        return ask_one(client, call, number, method, request)

    monkeypatch.setattr(Client, "_ask_one", asking)
    for _ in range(2):
        with pytest.raises(EtcdWentBack):
            manager.create_checkpoint("a", 3)
    assert asked.count(TXN.path) <= 3, "the first may find the connection broken"


@pytest.mark.parametrize("act", ACTS[2:5] + ACTS[6:], ids=["get", "create", "update", "batch", "transaction"])
def test_an_older_checkpoint_is_noticed_although_the_revision_is_higher(
    cluster: Cluster, member: Member, opened: Callable[..., EtcdStore], act: Callable[[Manager], object]
) -> None:
    manager: Manager = CheckpointManager(opened())
    _batch(manager)
    backup = member.save(cluster.program)
    manager.create_checkpoint("a", 6)
    _restore(cluster, backup)
    _write_elsewhere(member, 20)
    for error in (CheckpointError, EtcdWentBack):  # the first may be the error of one key, caused by the other
        with pytest.raises(error, match="older checkpoint"):
            act(manager)


def test_another_cluster_is_noticed_although_its_revision_is_higher(
    cluster: Cluster, member: Member, opened: Callable[..., EtcdStore]
) -> None:
    manager: Manager = CheckpointManager(opened())
    manager.create_checkpoint("a", 1)
    _lose_everything(cluster, "--initial-cluster-token", "another")
    _write_elsewhere(member, 20)
    with pytest.raises(EtcdWentBack, match=r"cluster [0-9a-f]+ answers instead of"):
        manager.load()


def test_an_idle_owner_notices_it_when_it_renews_its_lease(
    cluster: Cluster, member: Member, opened: Callable[..., EtcdStore], caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(ttl=2)
    manager: Manager = CheckpointManager(store)
    backup = member.save(cluster.program)
    for number in range(20):
        manager.create_checkpoint("a", number)
    with caplog.at_level(logging.WARNING, "checkpointmanager"):
        _restore(cluster, backup)
        until(lambda: "etcd went back from revision" in caplog.text)
    _write_elsewhere(member, 50)
    with pytest.raises(EtcdWentBack):
        manager.create_checkpoint("a", 99)


def test_a_standby_goes_on_waiting_and_becomes_the_owner(
    cluster: Cluster, opened: Callable[..., EtcdStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager: Manager = CheckpointManager(opened())
    for number in range(20):
        manager.create_checkpoint("a", number)
    waiting = threading.Event()
    wait = Ownership._wait

    def waits(ownership: Ownership, seen: int, seconds: float) -> None:
        waiting.set()
        wait(ownership, seen, seconds)

    def lose() -> None:
        assert waiting.wait(LIMIT)
        _lose_everything(cluster)

    monkeypatch.setattr(Ownership, "_wait", waits)
    run_together(lambda: opened(lock_timeout=math.inf), lose)
    with pytest.raises(EtcdWentBack):
        manager.create_checkpoint("a", 99)
