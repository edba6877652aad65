"""The limits of etcd: a full database, a compacted history, requests that are too large."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointManager,
    Put,
    Reason,
    Replaces,
    TransactionFailed,
    UnstorableValue,
)
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ...long import sample, times
from .client import Etcd
from .conftest import Opening
from .history import History
from .load import Load
from .servers import Cluster, any_etcd, every_etcd, version_of

Manager = CheckpointManager[Any]


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A member with room for 2 MB."""
    cluster = Cluster(any_etcd(), tmp_path_factory.mktemp("small"), arguments=["--quota-backend-bytes", "2000000"])
    yield cluster
    cluster.close()


def test_a_full_database_refuses_writes_reads_on_and_takes_writes_again_when_there_is_room(small: Cluster) -> None:
    history = History(small.etcd, "/full")
    with Load(small, "/full", padding=50_000) as load:
        load.until_refused(errno.ENOSPC)
        assert load.manager.get_checkpoint("k0").data["number"] == load.acknowledged[0], "reads go on"
        with pytest.raises(TransactionFailed) as failure, load.manager.transaction() as transaction:
            transaction.create_checkpoint("a", 1)
            transaction.create_checkpoint("b", 1)
        assert failure.value.errno == errno.ENOSPC
        with pytest.raises(EtcdUnavailable, match="database space exceeded"):
            EtcdStore(small.endpoints, "/another")
        small.etcd.compact(history.read(), physical=True)
        small.administer("maintenance/defragment")
        member = small.administer("maintenance/status")["header"]["member_id"]
        small.administer("maintenance/alarm", action="DEACTIVATE", memberID=member, alarm="NOSPACE")
        load.follow(1)
    assert not load.doubts
    load.check(history)


def test_compactions_under_load_lose_nothing(cluster: Cluster, etcd: Etcd, prefix: str) -> None:
    history = History(etcd, prefix)
    with Load(cluster, prefix) as load:
        for _ in range(times(3, 100)):
            load.follow(5)
            etcd.compact(history.read(), physical=True)
    assert not any(load.failures.values())
    load.check(history)


def test_a_checkpoint_that_does_not_fit_into_a_request_is_refused_before_it_is_sent(store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    with pytest.raises(UnstorableValue, match="over the limit of 778240"):
        manager.create_checkpoint("a", "x" * 800_000)
    assert "a" not in manager


def test_a_batch_fits_even_if_the_previous_generations_are_much_larger(store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    for number in range(9):
        manager.create_checkpoint(f"k{number}", "x" * 500_000)
    with manager.batch() as batch:
        for number in range(9):
            batch.create_checkpoint(f"k{number}", number)
    assert [manager.get_checkpoint(f"k{number}").data for number in range(9)] == [*range(9)]
    previous = manager.previous_checkpoint("k8")
    assert previous
    assert len(previous.data) == 500_000


def test_a_batch_fits_even_if_the_names_are_as_long_as_they_may_be(opening: Opening) -> None:
    store = opening(prefix="/" + "p" * 999)
    keys = [f"{number:02}" + "k" * 198 for number in range(60)]
    # Near these sizes the operations alone fit into one request of 1.5 MiB, and with the comparisons they do not.
    for size in range(22_000, 24_000, 250):
        blob = b"x" * size
        assert store.commit([Put(key, blob, 1, Replaces.ABSENT) for key in keys]) == {}
        assert store.commit([Put(key, b"", 1, Replaces.WHOLE) for key in keys]) == {}
        assert store.read(keys[-1], previous=True) == blob


def test_the_largest_checkpoint_fits_even_if_its_names_are_as_long_as_they_may_be(opening: Opening) -> None:
    store = opening(prefix="/" + "p" * 999)
    for letter in (b"x", b"y"):
        assert store.commit([Put("k" * 200, letter * store.max_bytes, 1, Replaces.WHOLE)]) == {}
    with store.writing():
        store.commit([Put("k" * 200, b"z" * store.max_bytes, 3, Replaces.WHOLE)], together=True)
    assert store.read("k" * 200, previous=True) == b"y" * store.max_bytes


def test_members_that_take_larger_requests_take_larger_checkpoints(tmp_path: Path) -> None:
    cluster = Cluster(any_etcd(), tmp_path, arguments=["--max-request-bytes", str((4 << 20) + (16 << 10))])
    try:
        with closing(EtcdStore(cluster.endpoints, "/large", max_bytes=2 << 20)) as store:
            for letter in (b"x", b"y"):
                assert store.commit([Put("a", letter * store.max_bytes, 1, Replaces.WHOLE)]) == {}
            with store.writing():
                store.commit([Put("a", b"z" * store.max_bytes, 3, Replaces.WHOLE)], together=True)
            assert store.read("a", previous=True) == b"y" * store.max_bytes
    finally:
        cluster.close()


def test_a_transaction_that_is_too_large_is_refused_before_it_is_sent(store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    with pytest.raises(TransactionFailed, match="make a smaller one") as failure, manager.transaction() as transaction:
        for number in range(4):
            transaction.create_checkpoint(f"k{number}", "x" * 500_000)
    assert failure.value.errno == errno.EMSGSIZE
    assert not failure.value.in_doubt
    assert manager.list_checkpoints() == []


def test_a_transaction_of_more_operations_than_etcd_takes_is_refused_before_it_is_sent(store: EtcdStore) -> None:
    with pytest.raises(TransactionFailed, match=r"has 1985 changes.*etcd takes 1984 changes"), store.writing():
        store.commit([Put(f"k{number}", b"", 1, Replaces.ABSENT) for number in range(1985)], together=True)
    assert store.keys() == []


@pytest.fixture(scope="module", params=every_etcd(), ids=version_of)
def each_version(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cluster: Cluster
) -> Iterator[Cluster]:
    """One member of each version of etcd that there is."""
    if request.param in ("", cluster.program):
        yield cluster
        return
    other = Cluster(request.param, tmp_path_factory.mktemp("versions"))
    yield other
    other.close()


REMOVED = {1, 2, *range(61, 67), *range(119, 123), 1984}  # where a request takes another form
SIZES = sorted({*REMOVED, *sample(range(1, 201), 17), 500})


def test_a_transaction_of_every_size_creates_replaces_and_removes_its_keys_at_once(
    each_version: Cluster, prefix: str
) -> None:
    with closing(EtcdStore(each_version.endpoints, prefix, timeout=60)) as store:
        manager: Manager = CheckpointManager(store)
        for size in SIZES:
            keys = [f"k{number}" for number in range(size)]
            with manager.transaction() as transaction:
                for key in keys:
                    transaction.create_checkpoint(key, size)
            loaded = manager.load()
            assert {key: found.data for key, found in loaded.checkpoints.items()} == dict.fromkeys(keys, size)
            written = {kv.mod_revision for kv in each_version.etcd.names(f"{prefix}/k")}
            assert len(written) == 1, "one revision"
            if size in REMOVED:
                with manager.transaction() as transaction:
                    for key in keys:
                        transaction.remove_checkpoint(key)
                assert manager.list_checkpoints() == [], size


def test_a_transaction_of_many_keys_reads_what_it_cannot_compare(store: EtcdStore, etcd: Etcd, prefix: str) -> None:
    keys = [f"k{number}" for number in range(121)]
    for blob in (b"1", b"2"):
        store.commit([Put(key, blob, 1, Replaces.WHOLE) for key in keys], together=True)
    etcd.put(f"{prefix}/k7.json", b"by hand")
    store.commit([Put(key, b"3", 1, Replaces.WHOLE) for key in keys], together=True)
    assert store.read("k7", previous=True) == b"by hand"
    assert store.read("k8", previous=True) == b"2"


def test_the_newest_four_copies_of_a_key_are_kept(store: EtcdStore) -> None:
    kept = []
    for number in range(6):
        store.commit([Put("a", b"bad %d" % number, 1, Replaces.DAMAGED)])
        kept.append(store.quarantine("a", Reason.CHECKSUM_MISMATCH))
    assert store.quarantined() == {"a": kept[-4:]}
