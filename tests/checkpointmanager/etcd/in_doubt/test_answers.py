"""No answer to a change: it is made once, or certainly not, or in doubt; what is in doubt never happens later."""

from __future__ import annotations

import pytest

from checkpointmanager import CheckpointWriteFailed, TransactionFailed
from checkpointmanager._etcd import commit
from checkpointmanager._etcd.client import Call
from checkpointmanager._etcd.wire import RANGE
from checkpointmanager.etcd import EtcdStore

from ..line import Fate, Line
from .changes import (
    CHANGES,
    LIMIT,
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


@pytest.fixture(params=[commit.MAX_COMPARED, 1], ids=["", "more keys than can be compared"])
def _compared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "MAX_COMPARED", request.param)


@pytest.mark.usefixtures("_compared")
@fates
@changes
def test_a_change_that_gets_no_answer_is_made_exactly_once(
    store: EtcdStore, manager: Manager, change: Change, fate: Fate
) -> None:
    line = Line(store)
    line.disturb(fate)
    change(manager)
    assert found(manager, CHANGES[change]) == CHANGES[change]
    assert not any(line.deliver())
    assert found(manager, CHANGES[change]) == CHANGES[change]
    name = f"{store._layout.prefix}/a.json".encode()
    writes = [kv.version for kv in store._client.ask(Call(5), RANGE, RANGE.request(key=name)).kvs]
    assert writes == ([] if change is remove else [2 if "a" in CHANGES[change] else 1])


@fates
@changes
def test_each_of_several_lost_answers_is_settled(
    store: EtcdStore, manager: Manager, change: Change, fate: Fate
) -> None:
    line = Line(store)
    line.disturb(Fate.LATE, fate, fate)
    change(manager)
    assert found(manager, CHANGES[change]) == CHANGES[change]
    assert not any(line.deliver())
    assert found(manager, CHANGES[change]) == CHANGES[change]


@fates
@changes
def test_when_time_is_up_it_is_in_doubt_and_the_repeated_call_makes_it(
    store: EtcdStore, manager: Manager, change: Change, fate: Fate
) -> None:
    line = Line(store)
    store._timeout = LIMIT
    line.disturb(None if change is replace_damaged else fate, always=fate)  # the copy to quarantine is made
    with pytest.raises(CheckpointWriteFailed) as failure:
        change(manager)
    assert failure.value.in_doubt
    line.mend()
    change(manager)
    values = {key: current for key, (current, _) in found(manager, CHANGES[change]).items()}
    expected = {key: current for key, (current, _) in CHANGES[change].items()}
    if change in (update, transaction) and fate is Fate.ANSWER_LOST:
        expected["a"] = 3  # the first one was made, and the caller has asked for another
    assert values == expected
    assert not any(line.deliver())


@changes
def test_what_was_in_doubt_never_happens_after_the_next_change(
    store: EtcdStore, manager: Manager, change: Change
) -> None:
    line = Line(store)
    store._timeout = LIMIT
    line.disturb(None if change is replace_damaged else Fate.LATE, always=Fate.LATE)
    with pytest.raises(CheckpointWriteFailed):
        change(manager)
    line.mend()
    manager.create_checkpoint("other", 1)  # a change of any key is enough
    before = found(manager, [*CHANGES[change], "other"] if change is not replace_damaged else ["other"])
    assert line.deliver() != []
    assert found(manager, before) == before


def test_a_key_that_was_removed_while_its_creation_was_in_doubt_does_not_come_back(
    store: EtcdStore, manager: Manager
) -> None:
    line = Line(store)
    store._timeout = LIMIT
    line.disturb(always=Fate.LATE)
    with pytest.raises(CheckpointWriteFailed):
        manager.create_checkpoint("new", 1)
    line.mend()
    manager.remove_checkpoint("new")
    assert not any(line.deliver())
    assert "new" not in manager


@pytest.mark.parametrize("second", [None, Fate.ANSWER_LOST], ids=["answered", "answer lost"])
def test_a_key_that_was_created_after_a_lost_answer_and_then_removed_does_not_come_back(
    store: EtcdStore, manager: Manager, second: Fate | None
) -> None:
    line = Line(store)
    line.disturb(Fate.LATE, second)
    manager.create_checkpoint("new", 1)  # the second attempt makes it, while the first is still on its way
    manager.remove_checkpoint("new")
    assert line.deliver() == [False]
    assert "new" not in manager


def test_an_interrupted_change_never_happens_after_the_next_one(store: EtcdStore, manager: Manager) -> None:
    line = Line(store)

    def interrupt() -> None:
        raise KeyboardInterrupt

    line.disturb(Fate.LATE, meanwhile=interrupt)
    with pytest.raises(KeyboardInterrupt):
        manager.create_checkpoint("new", 1)
    assert store._ownership._doubted == store._ownership.hold.written
    line.mend()
    manager.create_checkpoint("other", 1)


def test_a_transaction_in_doubt_says_so(store: EtcdStore, manager: Manager) -> None:
    line = Line(store)
    store._timeout = LIMIT
    line.disturb(always=Fate.LOST)
    with pytest.raises(TransactionFailed) as failure:
        transaction(manager)
    assert failure.value.in_doubt
    assert not failure.value.committed
    assert "power" not in str(failure.value)


@changes
def test_a_change_that_was_made_is_in_doubt_if_it_cannot_be_read_back_in_time(
    store: EtcdStore, manager: Manager, change: Change
) -> None:
    line = Line(store)
    store._timeout = LIMIT
    line.disturb(*[None] * (change is replace_damaged), Fate.ANSWER_LOST, meanwhile=line.lose_reads)
    with pytest.raises(CheckpointWriteFailed) as failure:
        change(manager)  # the second attempt is answered: a comparison fails, because the first one was carried out
    assert failure.value.in_doubt
