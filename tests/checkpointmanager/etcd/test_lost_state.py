"""An etcd that lost acknowledged state: restored from a backup, or with an empty disk, or another cluster.

Owner and readers get an error of its own, and nothing is acknowledged that is not there.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointError, CheckpointManager, CheckpointWriteFailed, Put, Remove, Replaces
from checkpointmanager.etcd import EtcdStore, EtcdWentBack

from ...long import LONG
from ..processes import run_together, until
from .client import Etcd
from .line import Fate, Line
from .servers import Cluster, Member, any_etcd, every_etcd, version_of

Manager = CheckpointManager[Any]
PREFIX = "/agents/node-7"
LOST = "compare it with the hardware, then close the store and open another"


@pytest.fixture(params=every_etcd() if LONG else [""], ids=version_of)
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
            store = EtcdStore(cluster.endpoints, PREFIX, **{"ttl": 600, "timeout": 30, "lock_timeout": 0, **options})
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
    etcd = Etcd(member.endpoint)
    for number in range(count):
        etcd.put("/elsewhere", b"%d" % number)


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
    locks = [cluster.etcd.get(f"{PREFIX}/.lock")]
    _lose_everything(cluster)
    new = opened()
    locks.append(cluster.etcd.get(f"{PREFIX}/.lock"))
    assert len({(lock.create_revision, lock.mod_revision) for lock in locks if lock}) == 1, "only the lease differs"
    for _ in range(3):
        with pytest.raises(EtcdWentBack):
            old.commit([Put("a", b"old again", 1, Replaces.ABSENT)])
    assert new.keys() == []
    assert new.commit([Put("a", b"new", 1, Replaces.ABSENT)]) == {}


@pytest.mark.parametrize("overtaken", [0, 50], ids=["", "and the revision is higher than before"])
def test_a_lock_that_is_older_than_the_owner_wrote_it_is_noticed_at_once(
    cluster: Cluster, member: Member, opened: Callable[..., EtcdStore], line: Line, overtaken: int
) -> None:
    manager: Manager = CheckpointManager(opened())
    manager.create_checkpoint("a", 1)
    backup = member.save(cluster.program)
    line.disturb(Fate.ANSWER_LOST)
    manager.create_checkpoint("a", 2)
    manager.create_checkpoint("a", 3)  # writes the lock again first
    line.mend()
    _restore(cluster, backup)
    _write_elsewhere(member, overtaken)
    del line.sent[:]
    for _ in range(2):
        with pytest.raises(EtcdWentBack):
            manager.create_checkpoint("a", 4)
    assert line.sent.count("Txn") <= 3, "the first may find the connection broken"


@pytest.mark.parametrize("act", [ACTS[2], ACTS[3], ACTS[7]], ids=["get", "create", "transaction"])
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
    cluster: Cluster, opened: Callable[..., EtcdStore], line: Line
) -> None:
    manager: Manager = CheckpointManager(opened())
    for number in range(20):
        manager.create_checkpoint("a", number)

    def lose() -> None:
        until(lambda: line.watches)
        _lose_everything(cluster)

    run_together(lambda: opened(lock_timeout=math.inf), lose)
    with pytest.raises(EtcdWentBack):
        manager.create_checkpoint("a", 99)
