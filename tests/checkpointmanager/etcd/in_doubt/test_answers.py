"""No answer to a change: it is made once, or certainly not, or in doubt; what is in doubt never happens later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkpointmanager import CheckpointWriteFailed, TransactionFailed

from ..client import Etcd
from ..line import Fate, Line
from .changes import (
    CHANGES,
    Change,
    Manager,
    changes,
    fates,
    found,
    remove,
    replace_damaged,
    transaction,
    update,
)


@pytest.mark.usefixtures("_compared")
@pytest.mark.parametrize(
    "lost",
    [(Fate.ANSWER_LOST,), (Fate.LOST,), (Fate.LATE,), (Fate.LATE, Fate.LATE, Fate.ANSWER_LOST)],
    ids=["answer", "request", "late", "several"],
)
@changes
def test_a_change_that_gets_no_answer_is_made_exactly_once(
    manager: Manager, line: Line, version_of_a: Callable[[], int], change: Change, lost: tuple[Fate, ...]
) -> None:
    line.disturb(*lost)
    change(manager)
    assert found(manager, CHANGES[change]) == CHANGES[change]
    assert not any(line.deliver())
    assert found(manager, CHANGES[change]) == CHANGES[change]
    assert version_of_a() == (0 if change is remove else 2 if "a" in CHANGES[change] else 1)


@pytest.fixture
def version_of_a(etcd: Etcd, prefix: str) -> Callable[[], int]:
    """How often it was written; 0 if it does not exist."""

    def version() -> int:
        a = etcd.get(f"{prefix}/a.json")
        return a.version if a else 0

    return version


@fates
@changes
def test_when_time_is_up_it_is_in_doubt_and_the_repeated_call_makes_it(
    manager: Manager, line: Line, change: Change, fate: Fate
) -> None:
    line.disturb(*[None] * (change is replace_damaged), until_time_is_up=fate)  # the copy to quarantine is made
    with pytest.raises(CheckpointWriteFailed) as failure:
        change(manager)
    assert failure.value.in_doubt
    assert isinstance(failure.value, TransactionFailed) == (change is transaction)
    assert "power" not in str(failure.value)
    line.mend()
    change(manager)
    values = {key: current for key, (current, _) in found(manager, CHANGES[change]).items()}
    expected = {key: current for key, (current, _) in CHANGES[change].items()}
    if change in (update, transaction) and fate is Fate.ANSWER_LOST:
        expected["a"] = 3  # the first one was made, and the caller has asked for another
    assert values == expected
    assert not any(line.deliver())


@changes
def test_what_was_in_doubt_never_happens_after_the_next_change(manager: Manager, line: Line, change: Change) -> None:
    line.disturb(*[None] * (change is replace_damaged), until_time_is_up=Fate.LATE)
    with pytest.raises(CheckpointWriteFailed):
        change(manager)
    line.mend()
    manager.create_checkpoint("other", 1)  # a change of any key is enough
    before = found(manager, [*CHANGES[change], "other"] if change is not replace_damaged else ["other"])
    assert line.deliver() != []
    assert found(manager, before) == before


def test_a_key_that_was_removed_while_its_creation_was_in_doubt_does_not_come_back(
    manager: Manager, line: Line
) -> None:
    line.disturb(until_time_is_up=Fate.LATE)
    with pytest.raises(CheckpointWriteFailed):
        manager.create_checkpoint("new", 1)
    line.mend()
    manager.remove_checkpoint("new")
    assert not any(line.deliver())
    assert "new" not in manager


@pytest.mark.parametrize("second", [None, Fate.ANSWER_LOST], ids=["answered", "answer lost"])
def test_a_key_that_was_created_after_a_lost_answer_and_then_removed_does_not_come_back(
    manager: Manager, line: Line, second: Fate | None
) -> None:
    line.disturb(Fate.LATE, second)
    manager.create_checkpoint("new", 1)  # the second attempt makes it, while the first is still on its way
    manager.remove_checkpoint("new")
    assert line.deliver() == [False]
    assert "new" not in manager


def test_an_interrupted_change_never_happens_after_the_next_one(manager: Manager, line: Line) -> None:
    manager.create_checkpoint("new", 1)
    manager.remove_checkpoint("new")  # so the change is the next request

    def interrupt() -> None:
        raise KeyboardInterrupt

    line.disturb(Fate.LATE, meanwhile=interrupt)
    with pytest.raises(KeyboardInterrupt):
        manager.create_checkpoint("new", 1)
    line.mend()
    del line.sent[:]
    manager.create_checkpoint("a", 2)
    assert line.sent == ["Txn", "Txn"], "the lock is written again first, which keeps out what was sent before"


@changes
def test_a_change_that_was_made_is_in_doubt_if_it_cannot_be_read_back_in_time(
    manager: Manager, line: Line, change: Change
) -> None:
    line.disturb(*[None] * (change is replace_damaged), Fate.ANSWER_LOST, meanwhile=line.lose_reads)
    with pytest.raises(CheckpointWriteFailed) as failure:
        change(manager)  # the second attempt is answered: a comparison fails, because the first one was carried out
    assert failure.value.in_doubt
