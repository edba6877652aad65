"""Becoming the owner when answers are lost, another process is quicker, or the lease cannot be renewed."""

from __future__ import annotations

import errno
import logging
import threading
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, DirectoryLocked
from checkpointmanager.etcd import EtcdUnavailable

from ...processes import LIMIT, until
from ..client import Etcd
from ..conftest import Opening, lose_the_lease
from ..line import Broken, Line, Request, full

RENEWAL = "LeaseKeepAlive"


@pytest.mark.parametrize("name", ["LeaseGrant", "Txn", "Range"], ids=["lease", "lock", "look"])
@pytest.mark.parametrize("arrived", [True, False], ids=["answer lost", "request lost"])
def test_a_store_becomes_the_owner_although_an_answer_is_lost(
    opening: Opening, line: Line, name: str, arrived: bool
) -> None:
    def lose_one(request: Request) -> Any:
        if request.name != name:
            return request.send()
        line.mend()
        if arrived:
            request.send()
        raise Broken

    line.carry = lose_one
    manager: CheckpointManager[Any] = CheckpointManager(opening())
    assert line.sent.count(name) > 1
    manager.create_checkpoint("a", 1)
    with pytest.raises(DirectoryLocked):
        opening()


def test_a_store_that_opens_between_look_and_try_of_another_is_the_owner(opening: Opening, line: Line) -> None:
    others: list[Any] = []

    def let_another_in(request: Request) -> Any:
        if request.is_change and not others:
            others.append(opening(owner="quicker"))
        return request.send()

    line.carry = let_another_in
    with pytest.raises(DirectoryLocked):
        opening()
    CheckpointManager[Any](others[0]).create_checkpoint("a", 1)


def test_a_lock_taken_by_the_request_that_fills_the_database_is_free_again_at_once(
    opening: Opening, line: Line
) -> None:
    def fill(request: Request) -> Any:
        reply = request.send()
        if request.is_change:
            line.mend()
            raise full()
        return reply

    line.carry = fill
    with pytest.raises(EtcdUnavailable) as refusal:
        opening()
    assert refusal.value.errno == errno.ENOSPC
    opening()


@pytest.mark.parametrize("error", [Broken(), RuntimeError("can't start new thread")], ids=["broken", "unforeseen"])
def test_a_lease_that_could_not_be_renewed_for_a_moment_is_logged_and_kept(
    opening: Opening, line: Line, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    renewed: list[Any] = []

    def fail_at_first(request: Request) -> Any:
        if request.name != RENEWAL:
            return request.send()
        if "could not be renewed" not in caplog.text:
            request.end_of_time()
            raise error
        renewed.append(request.send())
        return renewed[-1]

    line.carry = fail_at_first
    with caplog.at_level(logging.WARNING, "checkpointmanager"):
        store = opening(ttl=3)
        until(lambda: renewed)
    assert "could not be renewed" in caplog.text
    CheckpointManager[Any](store).create_checkpoint("a", 1)


@pytest.mark.parametrize("answered", [True, False], ids=["answered late", "never answered"])
def test_a_renewal_that_hangs_does_not_keep_close_from_releasing_the_lock_and_is_not_reported(
    opening: Opening, line: Line, caplog: pytest.LogCaptureFixture, answered: bool
) -> None:
    hangs, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def hang(request: Request) -> Any:
        if request.name == "LeaseRevoke" and answered:
            reply = request.send()
            go_on.set()  # close() still waits for the renewal, which now learns that there is no lease
            return reply
        if request.name != RENEWAL:
            return request.send()
        hangs.set()
        assert go_on.wait(LIMIT)
        try:
            if answered:
                return request.send_late()
            raise request.end_of_time()
        finally:
            ended.set()

    line.carry = hang
    store = opening(ttl=1)
    assert hangs.wait(LIMIT)
    with caplog.at_level(logging.WARNING, "checkpointmanager"):
        store.close()
        opening(ttl=60)
        go_on.set()
        assert ended.wait(LIMIT)
        until(lambda: [thread.name for thread in threading.enumerate()].count(f"lease of {store.path}") == 1)
    assert caplog.text == ""


def test_the_thread_that_renews_the_lease_notices_and_logs_that_it_has_expired(
    opening: Opening, etcd: Etcd, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = opening(ttl=1)
    with caplog.at_level(logging.WARNING, "checkpointmanager"):
        lose_the_lease(etcd, prefix)
        until(lambda: "has expired" in caplog.text)
    with pytest.raises(DirectoryLocked):
        store.check_owner()
