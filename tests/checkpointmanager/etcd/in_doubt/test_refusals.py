"""A refusal, with or without a lost answer before it: whether the change was made, was not made, or is in doubt."""

from __future__ import annotations

import errno
from contextlib import closing

import pytest

from checkpointmanager import CheckpointWriteFailed
from checkpointmanager._etcd.connections import Connections
from checkpointmanager._etcd.endpoints import Credentials
from checkpointmanager.etcd import EtcdStore

from ..line import Fate, Line
from ..servers import free_ports
from .changes import CHANGES, LIMIT, Change, Manager, changes, found, overwrite, replace_damaged, transaction


@pytest.mark.parametrize("change", [overwrite, transaction], ids=["overwrite", "transaction"])
def test_a_refusal_after_a_lost_answer_does_not_undo_what_was_made(
    store: EtcdStore, manager: Manager, change: Change
) -> None:
    Line(store).disturb(Fate.ANSWER_LOST, Fate.REFUSED)
    change(manager)
    assert found(manager, CHANGES[change]) == CHANGES[change]


@changes
def test_a_change_that_etcd_makes_and_refuses_because_it_filled_the_database_is_made(
    store: EtcdStore, manager: Manager, change: Change
) -> None:
    Line(store).disturb(None if change is replace_damaged else Fate.REFUSED_BUT_MADE, Fate.REFUSED_BUT_MADE)
    change(manager)
    assert found(manager, CHANGES[change]) == CHANGES[change]


@pytest.mark.parametrize("change", [overwrite, transaction], ids=["overwrite", "transaction"])
def test_a_refusal_after_a_lost_request_leaves_it_in_doubt_and_a_refusal_alone_does_not(
    store: EtcdStore, manager: Manager, change: Change
) -> None:
    line = Line(store)
    for fates, in_doubt in (([Fate.LATE, Fate.REFUSED], True), ([None, Fate.REFUSED], False)):
        line.disturb(*fates)
        with pytest.raises(CheckpointWriteFailed) as failure:
            change(manager)
        assert failure.value.in_doubt == in_doubt
        assert failure.value.errno == errno.ENOSPC
    assert not any(line.deliver())


def test_nothing_is_in_doubt_when_no_member_could_be_reached(
    store: EtcdStore, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Connections([f"127.0.0.1:{free_ports(1)[0]}"], Credentials(), tls=False)
    with closing(nowhere), monkeypatch.context() as patch:
        patch.setattr(store._client, "_connections", nowhere)
        patch.setattr(store, "_timeout", LIMIT)
        with pytest.raises(CheckpointWriteFailed) as failure:
            manager.create_checkpoint("a", 7)
    assert not failure.value.in_doubt
    assert failure.value.errno == errno.ECONNREFUSED
    assert manager.get_checkpoint("a").data == 1
