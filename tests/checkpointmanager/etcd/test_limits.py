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
from checkpointmanager._etcd import operations, pages
from checkpointmanager._etcd.client import Call, Client
from checkpointmanager._etcd.commit import CHANGES_AT_ONCE, MAX_REQUEST_BYTES, NAMES_BYTES, OVERHEAD_BYTES
from checkpointmanager._etcd.wire import RANGE, TXN, Method
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ...long import times
from .conftest import Opening
from .history import History
from .load import Load
from .servers import Cluster, any_etcd

Manager = CheckpointManager[Any]


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A member with room for 2 MB."""
    cluster = Cluster(any_etcd(), tmp_path_factory.mktemp("small"), arguments=["--quota-backend-bytes", "2000000"])
    yield cluster
    cluster.close()


def test_a_full_database_refuses_writes_reads_on_and_takes_writes_again_when_there_is_room(small: Cluster) -> None:
    history = History(small.endpoints, "/full")
    with Load(small, "/full", padding=50_000) as load:
        load.until_refused(errno.ENOSPC)
        assert load.manager.get_checkpoint("k0").data["number"] == load.acknowledged[0], "reads go on"
        with pytest.raises(TransactionFailed) as failure, load.manager.transaction() as transaction:
            transaction.create_checkpoint("a", 1)
            transaction.create_checkpoint("b", 1)
        assert failure.value.errno == errno.ENOSPC
        with pytest.raises(EtcdUnavailable, match="database space exceeded"):
            EtcdStore(small.endpoints, "/another")
        small.administer("kv/compaction", revision=str(history.read()), physical=True)
        small.administer("maintenance/defragment")
        member = small.administer("maintenance/status")["header"]["member_id"]
        small.administer("maintenance/alarm", action="DEACTIVATE", memberID=member, alarm="NOSPACE")
        load.follow(1)
    assert not load.doubts
    load.check(history)


def test_compactions_under_load_lose_nothing(cluster: Cluster, prefix: str) -> None:
    history = History(cluster.endpoints, prefix)
    with Load(cluster, prefix) as load:
        for _ in range(times(3, 100)):
            load.follow(5)
            cluster.administer("kv/compaction", revision=str(history.read()), physical=True)
    assert not any(load.failures.values())
    load.check(history)


def test_a_checkpoint_that_does_not_fit_into_a_request_is_refused_before_it_is_sent(store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    with pytest.raises(UnstorableValue, match="over the limit of 778240"):
        manager.create_checkpoint("a", "x" * 800_000)
    assert "a" not in manager


def test_the_largest_checkpoint_can_be_replaced_by_another_largest_one(store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    size = store.max_bytes - len(store_bytes(manager, "a", "")) - 10
    for letter in "xyz":
        manager.create_checkpoint("a", letter * size)
    previous = manager.previous_checkpoint("a")
    assert previous
    assert previous.data == "y" * size


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
    keys = [f"{number:02}" + "k" * 198 for number in range(CHANGES_AT_ONCE)]
    # With these previous generations the operations alone fit into one request, and with the comparisons they do not.
    blob = b"x" * (MAX_REQUEST_BYTES // len(keys) - 2 * len(store._layout.previous(keys[0])) - 2 * OVERHEAD_BYTES - 120)
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
    cluster = Cluster(any_etcd(), tmp_path, arguments=["--max-request-bytes", str((4 << 20) + NAMES_BYTES)])
    try:
        with closing(EtcdStore(cluster.endpoints, "/large", max_bytes=2 << 20)) as store:
            for letter in (b"x", b"y"):
                assert store.commit([Put("a", letter * store.max_bytes, 1, Replaces.WHOLE)]) == {}
            with store.writing():
                store.commit([Put("a", b"z" * store.max_bytes, 3, Replaces.WHOLE)], together=True)
            assert store.read("a", previous=True) == b"y" * store.max_bytes
    finally:
        cluster.close()


def store_bytes(manager: Manager, key: str, data: str) -> bytes:
    manager.create_checkpoint(key, data)
    return manager._store.read(key)


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


def test_the_largest_transaction_is_one_revision(store: EtcdStore) -> None:
    with store.writing():
        store.commit([Put(f"k{number}", b"", 1, Replaces.ABSENT) for number in range(1984)], together=True)
    request = RANGE.request(key=store._layout.checkpoints[0], range_end=store._layout.checkpoints[1], keys_only=True)
    found = [kv for kv in store._client.ask(Call(5), RANGE, request).kvs if store._layout.key_of(kv.key)]
    assert len(found) == 1984
    assert len({kv.mod_revision for kv in found}) == 1


def test_keys_are_listed_page_by_page_as_of_one_moment(store: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.commit([Put(f"k{number}", b"", 1, Replaces.ABSENT) for number in range(10)])
    monkeypatch.setattr(pages, "NAMES", 3)
    asked = _removing_between_pages(store, monkeypatch)
    assert sorted(store.keys()) == [f"k{number}" for number in range(10)]
    assert len(asked) == 4
    assert store.keys() == []


def _removing_between_pages(store: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """After the first page of a list all keys are removed."""
    ask = Client.ask
    asked: list[Any] = []

    def asking(client: Client, call: Call, method: Method, request: Any, **options: Any) -> Any:
        reply = ask(client, call, method, request, **options)
        if method is RANGE and request.limit:
            asked.append(request)
            if len(asked) == 1:
                names = [store._layout.current(f"k{number}") for number in range(10)]
                ask(client, call, TXN, operations.txn([], [operations.delete(name) for name in names]))
        return reply

    monkeypatch.setattr(Client, "ask", asking)
    return asked


def test_a_list_starts_again_when_its_moment_is_compacted(
    cluster: Cluster, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit([Put(f"k{number}", b"", 1, Replaces.ABSENT) for number in range(10)])
    monkeypatch.setattr(pages, "NAMES", 6)
    ask = Client.ask
    seen = 0

    def asking(client: Client, call: Call, method: Method, request: Any, **options: Any) -> Any:
        nonlocal seen
        reply = ask(client, call, method, request, **options)
        seen += method is RANGE and bool(request.limit)
        if seen == 1 and reply.more:
            other = ask(client, call, TXN, operations.txn([], [operations.put(b"/other", b"")]))
            cluster.administer("kv/compaction", revision=str(other.header.revision))
        return reply

    monkeypatch.setattr(Client, "ask", asking)
    assert sorted(store.keys()) == [f"k{number}" for number in range(10)]
    assert seen == 3


def test_writes_and_removals_go_on_after_a_compaction(cluster: Cluster, store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    for number in range(3):
        manager.create_checkpoint("a", number)
    cluster.administer("kv/compaction", revision=str(store.identity("a")), physical=True)
    manager.create_checkpoint("a", 3)
    previous = manager.previous_checkpoint("a")
    assert previous
    assert previous.data == 2
    manager.remove_checkpoint("a")
    assert manager.list_checkpoints() == []


def test_the_newest_four_copies_of_a_key_are_kept(store: EtcdStore) -> None:
    kept = []
    for number in range(6):
        store.commit([Put("a", b"bad %d" % number, 1, Replaces.DAMAGED)])
        kept.append(store.quarantine("a", Reason.CHECKSUM_MISMATCH))
    assert store.quarantined() == {"a": kept[-4:]}


def test_quarantine_keeps_the_value_at_the_moment_of_the_copy(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit([Put("a", b"bad 1", 1, Replaces.ABSENT)])
    ask = Client.ask
    changed: list[Any] = []

    def asking(client: Client, call: Call, method: Method, request: Any, **options: Any) -> Any:
        reply = ask(client, call, method, request, **options)
        if not changed:
            changed.append(reply)
            ask(client, call, TXN, operations.txn([], [operations.put(store._layout.current("a"), b"bad 2")]))
        return reply

    monkeypatch.setattr(Client, "ask", asking)
    kept = store.quarantine("a", Reason.CHECKSUM_MISMATCH)
    assert dict(store.snapshot())[kept.removeprefix(f"{store.path}/")] == b"bad 2"
