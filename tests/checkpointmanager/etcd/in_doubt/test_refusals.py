"""A refusal, with or without a lost answer before it: whether the change was made, was not made, or is in doubt."""

from __future__ import annotations

import errno
from typing import Any

import grpc
import pytest

from checkpointmanager import CheckpointWriteFailed

from ..line import Broken, Fate, Line, Request
from .changes import CHANGES, Change, Manager, changes, found, overwrite, replace_damaged, transaction

two_changes = pytest.mark.parametrize("change", [overwrite, transaction], ids=["overwrite", "transaction"])


@two_changes
def test_a_refusal_after_a_lost_answer_does_not_undo_what_was_made(
    manager: Manager, line: Line, change: Change
) -> None:
    line.disturb(Fate.ANSWER_LOST, Fate.REFUSED)
    change(manager)
    assert found(manager, CHANGES[change]) == CHANGES[change]


@changes
def test_a_change_that_etcd_makes_and_refuses_because_it_filled_the_database_is_made(
    manager: Manager, line: Line, change: Change
) -> None:
    line.disturb(None if change is replace_damaged else Fate.REFUSED_BUT_MADE, Fate.REFUSED_BUT_MADE)
    change(manager)
    assert found(manager, CHANGES[change]) == CHANGES[change]


@two_changes
def test_a_refusal_after_a_lost_request_leaves_it_in_doubt_and_a_refusal_alone_does_not(
    manager: Manager, line: Line, change: Change
) -> None:
    for fates, in_doubt in (([Fate.LATE, Fate.REFUSED], True), ([None, Fate.REFUSED], False)):
        line.disturb(*fates)
        with pytest.raises(CheckpointWriteFailed) as failure:
            change(manager)
        assert failure.value.in_doubt == in_doubt
        assert failure.value.errno == errno.ENOSPC
    assert not any(line.deliver())


def test_nothing_is_in_doubt_when_no_member_could_be_reached(manager: Manager, line: Line) -> None:
    def unreachable(request: Request) -> Any:
        request.end_of_time()
        raise Broken(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: …")

    line.carry = unreachable
    with pytest.raises(CheckpointWriteFailed) as failure:
        manager.create_checkpoint("a", 7)
    assert not failure.value.in_doubt
    assert failure.value.errno == errno.ECONNREFUSED
    line.mend()
    assert manager.get_checkpoint("a").data == 1
