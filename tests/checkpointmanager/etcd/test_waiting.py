"""Every wait counts against the `timeout` of the call: for other threads, for a login, for the lock, for a list."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from checkpointmanager import CheckpointWriteFailed, Put, Replaces
from checkpointmanager._etcd import operations, pages
from checkpointmanager._etcd.client import Call, Client
from checkpointmanager._etcd.faults import NoAnswer
from checkpointmanager._etcd.wire import RANGE, TXN, Method
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ..processes import LIMIT, run_together, until
from .conftest import Opening
from .servers import Cluster, any_etcd, stopped

LONG = 3600.0  # seconds: for a test, a call that takes this long never ends
SHORT = 0.2  # seconds
OTHERS = r"other calls took all of the 0\.2 s"
NO_ANSWER = r"no answer within 0\.2 s"


@pytest.fixture(scope="module")
def stoppable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One member, which runs again after each test."""
    cluster = Cluster(any_etcd(), tmp_path_factory.mktemp("stoppable"))
    yield cluster
    cluster.close()


@pytest.fixture
def store(stoppable: Cluster, opening: Opening) -> EtcdStore:
    return opening(endpoints=stoppable.endpoints, ttl=600, timeout=LONG)


@pytest.fixture
def reader(stoppable: Cluster, opening: Opening) -> EtcdStore:
    """It is connected, and has to log in again. The member wants no password, but the store learns that by a login."""
    reader = opening(endpoints=stoppable.endpoints, read_only=True, timeout=LONG, user="agent", password="secret")
    assert reader.keys() == []
    reader._client._token = None
    return reader


@contextmanager
def while_another_thread(act: Callable[[], object], *, holds: threading.RLock, of: Cluster) -> Iterator[None]:
    """The member is stopped, and another thread is in the middle of `act`, which succeeds after the block."""
    with ThreadPoolExecutor(1) as threads:
        with stopped(*of.members):
            acting = threads.submit(act)
            until(lambda: _is_held(holds))
            yield
        acting.result(LIMIT)


def _is_held(lock: threading.RLock) -> bool:
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


def put(key: str) -> list[Put]:
    return [Put(key, b"", 1, Replaces.ABSENT)]


def test_waiting_for_the_login_of_another_thread_ends_in_time(stoppable: Cluster, reader: EtcdStore) -> None:
    with while_another_thread(reader.keys, holds=reader._client._logging_in, of=stoppable):
        reader._timeout = SHORT
        with pytest.raises(EtcdUnavailable, match=OTHERS):
            run_together(reader.keys)


def test_a_login_that_gets_no_answer_ends_in_time(stoppable: Cluster, reader: EtcdStore) -> None:
    reader._timeout = SHORT
    with stopped(*stoppable.members), pytest.raises(EtcdUnavailable, match=NO_ANSWER):
        run_together(reader.keys)


def in_doubt(stoppable: Cluster, store: EtcdStore) -> None:
    """A write gets no answer, so `.lock` has to be written again before the next one."""
    _commit(store, "doubtful")  # now it is known, and the next write sends nothing else
    store._timeout = SHORT
    with stopped(*stoppable.members):
        assert store.commit(put("doubtful"))["doubtful"].in_doubt


def test_waiting_while_another_thread_writes_the_lock_again_ends_in_time(stoppable: Cluster, store: EtcdStore) -> None:
    in_doubt(stoppable, store)
    store._timeout = LONG
    with while_another_thread(lambda: _commit(store, "a"), holds=store._ownership._renewing, of=stoppable):
        store._timeout = SHORT
        with pytest.raises(CheckpointWriteFailed, match=OTHERS) as failure:
            run_together(lambda: _commit(store, "b"))
        assert not failure.value.in_doubt
    assert {"a", "b"} & {*store.keys()} == {"a"}


def test_writing_the_lock_again_without_an_answer_ends_in_time(stoppable: Cluster, store: EtcdStore) -> None:
    in_doubt(stoppable, store)
    with stopped(*stoppable.members), pytest.raises(CheckpointWriteFailed, match=NO_ANSWER) as failure:
        run_together(lambda: _commit(store, "a"))
    assert not failure.value.in_doubt
    store._timeout = LONG
    _commit(store, "b")
    assert {"a", "b"} & {*store.keys()} == {"b"}


def _commit(store: EtcdStore, key: str) -> None:
    for error in store.commit(put(key)).values():
        raise error


def test_listing_ends_in_time_if_every_moment_is_compacted_before_the_last_page(
    stoppable: Cluster, store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit([Put(f"k{number}", b"", 1, Replaces.ABSENT) for number in range(4)])
    monkeypatch.setattr(pages, "NAMES", 3)
    store._timeout = SHORT
    ask = Client.ask
    compactions = 0

    def asking(client: Client, call: Call, method: Method, request: Any, **options: Any) -> Any:
        nonlocal compactions
        reply = ask(client, call, method, request, **options)
        if method is RANGE and reply.more:
            newer = ask(client, Call(LIMIT), TXN, operations.txn([], [operations.put(b"/other", b"")])).header.revision
            stoppable.administer("kv/compaction", revision=str(newer))
            compactions += 1
        return reply

    monkeypatch.setattr(Client, "ask", asking)
    with pytest.raises(EtcdUnavailable, match=NO_ANSWER):
        run_together(store.keys)
    assert compactions


def test_nothing_is_sent_and_nothing_is_in_doubt_when_no_time_is_left(store: EtcdStore) -> None:
    call = Call(0)
    change = operations.txn([], [operations.put(store._layout.current("a"), b"")])
    with pytest.raises(NoAnswer, match="earlier requests of this call"):
        store._client.ask(call, TXN, change, changing=True)
    assert not call.unsure
    assert store.keys() == []
