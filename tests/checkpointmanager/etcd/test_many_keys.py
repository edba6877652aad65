"""Many keys at once: read in pages, within the time of one call, and during a load as of one moment."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from checkpointmanager import (
    BatchFailed,
    CheckpointError,
    CheckpointManager,
    CheckpointWriteFailed,
    Event,
    Put,
    Replaces,
)
from checkpointmanager._etcd import operations
from checkpointmanager._etcd.client import Call, Client
from checkpointmanager._etcd.faults import NoAnswer
from checkpointmanager._etcd.wire import TXN, Method
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ..processes import run_together
from .conftest import Opening
from .servers import Cluster, any_etcd, stopped

Manager = CheckpointManager[Any]
KEYS = [f"k{number:03}" for number in range(100)]


def _create_in_batch(manager: Manager, value: int = 1, keys: list[str] = KEYS) -> None:
    with manager.batch() as batch:
        for key in keys:
            batch.create_checkpoint(key, value)


def _remove_in_batch(manager: Manager) -> None:
    with manager.batch() as batch:
        for key in KEYS:
            batch.remove_checkpoint(key)


def _create_in_transaction(manager: Manager, value: int = 1) -> None:
    with manager.transaction() as transaction:
        for key in KEYS:
            transaction.create_checkpoint(key, value)


def _update_in_transaction(manager: Manager) -> None:
    with manager.transaction() as transaction:
        for key in KEYS:
            transaction.update_checkpoint(key, lambda number: (number or 0) + 1, None)


changes = pytest.mark.parametrize(
    "change", [_create_in_batch, _remove_in_batch, _create_in_transaction, _update_in_transaction]
)


@contextmanager
def _counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The requests that are sent inside the block."""
    asked: list[str] = []
    ask = Client.ask

    def asking(client: Client, call: Call, method: Method, request: Any, **options: Any) -> Any:
        asked.append(method.path)
        return ask(client, call, method, request, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "ask", asking)
        yield asked


@changes
def test_a_hundred_keys_that_nobody_knows_are_read_in_pages(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch, change: Callable[[Manager], None]
) -> None:
    manager: Manager = CheckpointManager(store)
    with _counting(monkeypatch) as asked:
        change(manager)
    assert len(asked) <= 4  # the keys, their previous generations, and one or two changes
    assert len(manager.load().checkpoints) == (0 if change is _remove_in_batch else 100)


@changes
def test_a_hundred_keys_that_were_loaded_are_read_in_pages_as_well(
    opening: Opening, monkeypatch: pytest.MonkeyPatch, change: Callable[[Manager], None]
) -> None:
    with CheckpointManager[Any](opening()) as manager:
        _create_in_batch(manager)
    restarted: Manager = CheckpointManager(opening())
    restarted.load()
    with _counting(monkeypatch) as asked:
        change(restarted)
    assert len(asked) <= 3


def test_a_batch_of_keys_that_the_owner_wrote_is_read_by_no_request(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager: Manager = CheckpointManager(store)
    _create_in_batch(manager)
    with _counting(monkeypatch) as asked:
        _create_in_batch(manager, 2)
    assert len(asked) == 2


@pytest.fixture(scope="module")
def stoppable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One member, which runs again after each test."""
    cluster = Cluster(any_etcd(), tmp_path_factory.mktemp("stoppable"))
    yield cluster
    cluster.close()


@changes
@pytest.mark.parametrize("known", [False, True], ids=["unknown keys", "known keys"])
def test_a_change_of_many_keys_ends_in_time_when_no_member_answers(
    stoppable: Cluster, opening: Opening, change: Callable[[Manager], None], known: bool
) -> None:
    manager: Manager = CheckpointManager(opening(endpoints=stoppable.endpoints, ttl=600, timeout=3))
    if known:
        _create_in_batch(manager, 7)
    with stopped(*stoppable.members):
        started = time.monotonic()
        with pytest.raises(CheckpointError):
            change(manager)
        assert time.monotonic() - started < 100, "a hundred keys took a hundred times as long as one"


def test_a_batch_has_one_limit_for_all_of_its_requests(store: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> None:
    manager: Manager = CheckpointManager(store)
    keys = [f"k{number:04}" for number in range(1200)]
    ask_one = store._client._ask_one

    def slow(call: Call, member: int, method: Method, request: Any) -> Any:
        if method is TXN and request.compare:
            time.sleep(0.3)
        return ask_one(call, member, method, request)

    monkeypatch.setattr(store._client, "_ask_one", slow)
    monkeypatch.setattr(store, "_timeout", 2.0)
    with pytest.raises(BatchFailed) as failure:
        _create_in_batch(manager, 1, keys)
    monkeypatch.undo()
    failed = failure.value.failures
    assert 0 < len(failed) < len(keys)
    in_doubt = {key for key, error in failed.items() if isinstance(error, CheckpointWriteFailed) and error.in_doubt}
    assert {*manager.list_checkpoints()} - in_doubt == {*keys} - {*failed}


def test_what_a_change_has_read_ahead_is_not_read_after_it(opening: Opening, store: EtcdStore) -> None:
    manager: Manager = CheckpointManager(store)
    _create_in_batch(manager)
    store.close()
    owner: Manager = CheckpointManager(opening())

    def fail(_: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), owner.transaction() as transaction:
        for key in KEYS:
            transaction.update_checkpoint(key, fail)
    owner.create_checkpoint(KEYS[50], 2)
    _create_in_batch(owner, 3, KEYS[:40])
    assert [owner.get_checkpoint(key).data for key in (KEYS[1], KEYS[50], KEYS[99])] == [3, 2, 1]


@pytest.mark.parametrize("repair", [False, True])
def test_a_load_sees_a_transaction_as_a_whole_or_not_at_all(
    store: EtcdStore, opening: Opening, monkeypatch: pytest.MonkeyPatch, repair: bool
) -> None:
    manager: Manager = CheckpointManager(store)
    keys = [f"k{number:03}" for number in range(300)]
    values = iter(range(1, 1000))

    def write() -> None:
        value = next(values)
        with manager.transaction() as transaction:
            for key in [*keys, f"new-{value}"]:
                transaction.create_checkpoint(key, value)

    write()
    ask, asked = Client.ask, []
    reader = opening(read_only=True)

    def asking(client: Client, call: Call, method: Method, request: Any, **options: Any) -> Any:
        reply = ask(client, call, method, request, **options)
        if client is reader._client:
            asked.append(request)
            write()
        return reply

    monkeypatch.setattr(Client, "ask", asking)
    loaded = CheckpointManager[Any](reader).load(repair=repair).checkpoints
    assert {key: found.data for key, found in loaded.items()} == {**dict.fromkeys(keys, 1), "new-1": 1}
    assert len(asked) == 4, "the list and three pages"
    assert CheckpointManager[Any](reader).get_checkpoint(keys[0]).data > 1, "after the load, reads are of now"


@pytest.mark.parametrize("read", [CheckpointManager.load, CheckpointManager.verify])
def test_after_a_load_that_failed_reads_are_of_now_although_its_error_is_kept(
    store: EtcdStore, opening: Opening, monkeypatch: pytest.MonkeyPatch, read: Callable[[Manager], object]
) -> None:
    manager: Manager = CheckpointManager(store)
    keys = [f"k{number:03}" for number in range(300)]
    _create_in_batch(manager, 1, keys)
    other = opening(read_only=True)
    reader: Manager = CheckpointManager(other)
    ask = Client.ask
    asked: list[Any] = []

    def asking(client: Client, call: Call, method: Method, request: Any, **options: Any) -> Any:
        asked.append(request)
        if len(asked) == 3:
            raise NoAnswer(errno.ETIMEDOUT, "no answer")
        return ask(client, call, method, request, **options)

    with monkeypatch.context() as patch, pytest.raises(EtcdUnavailable) as kept:
        patch.setattr(Client, "ask", asking)
        read(reader)
    _create_in_batch(manager, 2, keys)
    assert [reader.get_checkpoint(key).data for key in (keys[1], keys[200], keys[299])] == [2, 2, 2]
    assert kept.value.errno == errno.ETIMEDOUT


def test_a_load_whose_moment_is_compacted_fails_and_can_be_repeated(
    cluster: Cluster, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager: Manager = CheckpointManager(store)
    keys = [f"k{number:03}" for number in range(300)]
    _create_in_batch(manager, 1, keys)
    ask = Client.ask
    asked: list[Any] = []

    def asking(client: Client, call: Call, method: Method, request: Any, **options: Any) -> Any:
        reply = ask(client, call, method, request, **options)
        asked.append(request)
        if len(asked) == 2:
            written = ask(client, call, TXN, operations.txn([], [operations.put(b"/elsewhere", b"")]))
            cluster.administer("kv/compaction", revision=str(written.header.revision))
        return reply

    monkeypatch.setattr(Client, "ask", asking)
    with pytest.raises(EtcdUnavailable) as failure:
        manager.load()
    assert failure.value.errno == errno.ERANGE
    assert len(manager.load().checkpoints) == 300


def test_a_change_made_during_a_load_is_based_on_now_and_read_by_the_thread_that_made_it(store: EtcdStore) -> None:
    counter: Manager = CheckpointManager(store)
    counter.create_checkpoint("b", 1)
    assert store.commit([Put("a", b"rubbish", 1, Replaces.ABSENT)]) == {}
    seen: list[Any] = []

    def count(number: int) -> int:
        return number + 1

    def on_damage(_: Event) -> None:
        run_together(lambda: counter.update_checkpoint("b", count))  # by another thread, while this one loads
        manager.update_checkpoint("b", count)
        seen.append(manager.get_checkpoint("b").data)

    manager: Manager = CheckpointManager(store, on_event=on_damage)
    assert list(manager.load().problems) == ["a"]
    assert seen == [3]
