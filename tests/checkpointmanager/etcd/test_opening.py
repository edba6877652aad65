"""Becoming the owner when answers are lost, another process is quicker, or the lease cannot be renewed."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, DirectoryLocked
from checkpointmanager._etcd.client import Call, Client
from checkpointmanager._etcd.wire import LEASE_GRANT, LEASE_KEEP_ALIVE, RANGE, TXN, Method
from checkpointmanager.etcd import EtcdUnavailable

from ..processes import LIMIT, until
from .conftest import Opening
from .line import Broken, Full

Asking = Callable[[Client, Call, int, Method, Any], Any]


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[Method, Callable[[Callable[[], Any]], Any]], None]:
    """Replaces one method of the servers, for all clients."""
    ask_one: Asking = Client._ask_one

    def stand_between(wanted: Method, act: Callable[[Callable[[], Any]], Any]) -> None:
        def between(client: Client, call: Call, member: int, method: Method, request: Any) -> Any:
            def ask() -> Any:
                return ask_one(client, call, member, method, request)

            return act(ask) if method is wanted else ask()

        monkeypatch.setattr(Client, "_ask_one", between)

    return stand_between


Between = Callable[[Method, Callable[[Callable[[], Any]], Any]], None]


@pytest.mark.parametrize("method", [LEASE_GRANT, TXN, RANGE], ids=["lease", "lock", "look"])
@pytest.mark.parametrize("arrived", [True, False], ids=["answer lost", "request lost"])
def test_a_store_becomes_the_owner_although_an_answer_is_lost(
    opening: Opening, asking: Between, method: Method, arrived: bool
) -> None:
    lost: list[Any] = []

    def lose_the_first(ask: Callable[[], Any]) -> Any:
        if lost:
            return ask()
        lost.append(ask() if arrived else None)
        raise Broken

    asking(method, lose_the_first)
    manager: CheckpointManager[Any] = CheckpointManager(opening(timeout=5))
    assert lost
    manager.create_checkpoint("a", 1)
    with pytest.raises(DirectoryLocked):
        opening()


def test_a_store_that_opens_between_look_and_try_of_another_is_the_owner(opening: Opening, asking: Between) -> None:
    others: list[Any] = []

    def let_another_in(ask: Callable[[], Any]) -> Any:
        if not others:
            others.append(None)
            others[0] = opening(owner="quicker")
        return ask()

    asking(TXN, let_another_in)
    with pytest.raises(DirectoryLocked):
        opening()
    CheckpointManager[Any](others[0]).create_checkpoint("a", 1)


def test_a_lock_taken_by_the_request_that_fills_the_database_is_free_again_at_once(
    opening: Opening, asking: Between
) -> None:
    filled: list[Any] = []

    def fill(ask: Callable[[], Any]) -> Any:
        if filled:
            return ask()
        filled.append(ask())
        raise Full

    asking(TXN, fill)
    with pytest.raises(EtcdUnavailable) as refusal:
        opening()
    assert refusal.value.errno == errno.ENOSPC
    opening()


def test_a_lease_that_could_not_be_renewed_for_a_moment_is_logged_and_kept(
    opening: Opening, asking: Between, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_at_first(ask: Callable[[], Any]) -> Any:
        if "could not be renewed" not in caplog.text:
            raise Broken
        return ask()

    with caplog.at_level(logging.WARNING, "checkpointmanager"):
        asking(LEASE_KEEP_ALIVE, fail_at_first)
        store = opening(ttl=3)
        lease = store._ownership.lease
        assert lease
        first = lease.renewed
        until(lambda: lease.renewed > first)
    assert "could not be renewed" in caplog.text
    CheckpointManager[Any](store).create_checkpoint("a", 1)


def test_a_lease_goes_on_after_an_error_that_nobody_foresaw(
    opening: Opening, asking: Between, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_at_first(ask: Callable[[], Any]) -> Any:
        if "can't start new thread" not in caplog.text:
            raise RuntimeError("can't start new thread")
        return ask()

    with caplog.at_level(logging.WARNING, "checkpointmanager"):
        asking(LEASE_KEEP_ALIVE, fail_at_first)
        lease = opening(ttl=3)._ownership.lease
        assert lease
        first = lease.renewed
        until(lambda: lease.renewed > first)


def test_a_renewal_that_hangs_does_not_keep_close_from_releasing_the_lock(
    opening: Opening, asking: Between, caplog: pytest.LogCaptureFixture
) -> None:
    hangs, go_on = threading.Event(), threading.Event()

    def hang(_: Callable[[], Any]) -> Any:
        hangs.set()
        go_on.wait(LIMIT)
        raise Broken

    asking(LEASE_KEEP_ALIVE, hang)
    store = opening(ttl=3, timeout=0.5)
    assert hangs.wait(LIMIT)
    with caplog.at_level(logging.WARNING, "checkpointmanager"):
        store.close()
    assert caplog.text == ""
    opening()
    go_on.set()


def test_a_lease_that_is_revoked_while_it_is_renewed_is_not_reported_as_lost(
    opening: Opening, asking: Between, caplog: pytest.LogCaptureFixture
) -> None:
    hangs, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def answer_late(ask: Callable[[], Any]) -> Any:
        hangs.set()
        assert go_on.wait(LIMIT)
        try:
            return ask()
        finally:
            done.set()

    asking(LEASE_KEEP_ALIVE, answer_late)
    store = opening(ttl=3)
    lease = store._ownership.lease
    assert lease
    assert hangs.wait(LIMIT)
    with caplog.at_level(logging.WARNING, "checkpointmanager"):
        lease.revoke(Call(LIMIT))
        go_on.set()
        assert done.wait(LIMIT)
        lease._thread.join(LIMIT)
    assert caplog.text == ""
