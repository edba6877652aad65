"""Every wait counts against the `timeout` of the call: for other threads, for a login, for the lock, for a list."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from checkpointmanager import BatchFailed, CheckpointError, CheckpointManager, CheckpointWriteFailed, Put, Replaces
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ...processes import LIMIT, run_together, until
from ..client import Etcd
from ..conftest import Opening
from ..line import Line, Request
from ..servers import Cluster, stopped

LONG = 3600.0  # seconds: for a test, a call that takes this long never ends
SHORT = 0.2  # seconds
SPENT = 0.05  # seconds
OTHERS = r"other calls took all of the 0\.2 s"
NO_ANSWER = r"no answer within 0\.2 s"


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
    with stopped(*stoppable.members), pytest.raises(CheckpointWriteFailed) as failure:
        _commit(store, "doubtful")
    assert failure.value.in_doubt


def _commit(store: EtcdStore, key: str) -> None:
    for error in store.commit([Put(key, b"", 1, Replaces.ABSENT)]).values():
        raise error


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


def test_listing_ends_in_time_if_every_moment_is_compacted_before_the_last_page(
    store: EtcdStore, stoppable: Cluster, line: Line
) -> None:
    store.commit([Put(f"k{number}", b"", 1, Replaces.ABSENT) for number in range(1001)])
    etcd: Etcd = stoppable.etcd

    def compact(request: Request) -> Any:
        reply = request.send()
        etcd.compact(etcd.put("/other", b""))
        return reply

    line.carry = compact
    store._timeout = SHORT
    with pytest.raises(EtcdUnavailable, match=NO_ANSWER):
        run_together(store.keys)
    assert len(line.sent) > 1


def _in_batch(manager: CheckpointManager[Any], keys: list[str]) -> None:
    with manager.batch() as batch:
        for key in keys:
            batch.create_checkpoint(key, 1)


def _in_transaction(manager: CheckpointManager[Any], keys: list[str]) -> None:
    with manager.transaction() as transaction:
        for key in keys:
            transaction.update_checkpoint(key, lambda number: (number or 0) + 1, None)


@pytest.mark.parametrize("change", [_in_batch, _in_transaction])
@pytest.mark.parametrize("known", [False, True], ids=["unknown keys", "known keys"])
def test_a_change_of_many_keys_ends_in_time_when_no_member_answers(
    store: EtcdStore, stoppable: Cluster, line: Line, change: Callable[[Any, list[str]], None], known: bool
) -> None:
    manager: CheckpointManager[Any] = CheckpointManager(store)
    keys = [f"k{number}" for number in range(100)]
    if known:
        _in_batch(manager, keys)
    store._timeout = SHORT
    del line.sent[:]
    with stopped(*stoppable.members), pytest.raises(CheckpointError):
        change(manager, keys)
    assert len(line.sent) < len(keys), "each key had the time of the whole change"


def test_a_batch_has_one_limit_for_all_of_its_requests(store: EtcdStore, line: Line) -> None:
    manager: CheckpointManager[Any] = CheckpointManager(store)
    keys = [f"k{number}" for number in range(300)]
    left: list[float] = []  # when each of the first three pieces is sent

    def use_up_the_time(request: Request) -> Any:
        if request.is_change:
            left.append(request.call.left())
            time.sleep(SPENT)
            if len(left) == 3:
                raise request.end_of_time()
        return request.send()

    line.carry = use_up_the_time
    with pytest.raises(BatchFailed) as failure:
        _in_batch(manager, keys)
    assert left[0] - left[1] >= SPENT <= left[1] - left[2], "each piece had the whole time"
    assert {*failure.value.failures} == {*keys[120:]}
