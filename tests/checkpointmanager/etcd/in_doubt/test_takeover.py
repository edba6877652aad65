"""No answer to a change, and another owner takes over meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkpointmanager import CheckpointManager, CheckpointWriteFailed, DirectoryLocked

from ..client import Etcd
from ..conftest import Opening, lose_the_lease
from ..line import Fate, Line
from .changes import CHANGES, Change, Manager, changes, overwrite, remove, replace_damaged, transaction

TakingOver = Callable[..., None]


@pytest.fixture
def taking_over(line: Line, etcd: Etcd, prefix: str, opening: Opening) -> TakingOver:
    """The next changes have these fates. Before the second one arrives, the lease runs out, and another owner comes and
    does something.
    """

    def disturb(*fates: Fate | None, act: Callable[[Manager], object] = id) -> None:
        tries = iter(range(1, 100))

        def meanwhile() -> None:
            if next(tries) == 2:
                lose_the_lease(etcd, prefix)
                act(CheckpointManager(opening(owner="the other")))

        line.disturb(*fates, meanwhile=meanwhile)

    return disturb


def _overwrite_all(other: Manager) -> None:
    with other.transaction() as transaction:
        transaction.create_checkpoint("a", 70)
        transaction.create_checkpoint("b", 70)


@pytest.mark.parametrize("change", [overwrite, remove, transaction], ids=["overwrite", "remove", "transaction"])
@pytest.mark.parametrize("act", [id, _overwrite_all], ids=["left alone", "overwritten by the other"])
@pytest.mark.parametrize("fate", [Fate.ANSWER_LOST, Fate.LOST], ids=["made", "not made"])
def test_a_change_without_an_answer_is_known_even_if_another_owner_came_meanwhile(
    manager: Manager, taking_over: TakingOver, change: Change, act: Callable[[Manager], object], fate: Fate
) -> None:
    taking_over(fate, Fate.LOST, act=act)
    if fate is Fate.ANSWER_LOST:
        change(manager)  # it was made while this was the owner
    else:
        with pytest.raises(DirectoryLocked):
            change(manager)
    with pytest.raises(DirectoryLocked):
        change(manager)
    made = CHANGES[change]["a"][0] if fate is Fate.ANSWER_LOST else 1
    checkpoint = manager.get_checkpoint("a", None)  # reads go on
    assert (checkpoint.data if checkpoint else None) == (70 if act is _overwrite_all else made)


@changes
def test_a_change_that_arrives_after_another_owner_came_is_refused(
    manager: Manager, line: Line, taking_over: TakingOver, change: Change
) -> None:
    first = None if change is replace_damaged else Fate.LATE  # the copy to quarantine is made
    taking_over(first, Fate.LATE, Fate.LATE)
    with pytest.raises(DirectoryLocked):
        change(manager)
    arrived = line.deliver()
    assert arrived
    assert not any(arrived)


def test_it_is_in_doubt_if_the_moment_before_the_other_owner_is_compacted(
    etcd: Etcd, prefix: str, manager: Manager, taking_over: TakingOver
) -> None:
    def act(other: Manager) -> None:
        for number in range(3):
            other.create_checkpoint("a", 70 + number)
        newest = etcd.get(f"{prefix}/a.json")
        assert newest
        etcd.compact(newest.mod_revision)

    taking_over(Fate.ANSWER_LOST, Fate.LOST, act=act)
    with pytest.raises(CheckpointWriteFailed) as failure:
        manager.create_checkpoint("a", 2)
    assert failure.value.in_doubt


@pytest.mark.parametrize("change", [overwrite, remove, transaction], ids=["overwrite", "remove", "transaction"])
@pytest.mark.parametrize("fate", [Fate.ANSWER_LOST, Fate.LOST], ids=["made", "not made"])
def test_it_is_in_doubt_if_the_moment_before_the_other_owner_cannot_be_read_in_time(
    manager: Manager, line: Line, taking_over: TakingOver, change: Change, fate: Fate
) -> None:
    taking_over(fate, Fate.LOST, act=lambda _: line.lose_reads())
    with pytest.raises(CheckpointWriteFailed) as failure:
        change(manager)
    assert failure.value.in_doubt
