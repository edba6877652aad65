"""No answer to a change: it is made once, or certainly not, or in doubt; and what is in doubt never happens later."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from checkpointmanager import (
    BatchFailed,
    CheckpointManager,
    CheckpointWriteFailed,
    Current,
    DirectoryLocked,
    Put,
    Reason,
    TransactionFailed,
)
from checkpointmanager._etcd.client import Call
from checkpointmanager._etcd.connections import Connections
from checkpointmanager._etcd.endpoints import Credentials
from checkpointmanager._etcd.wire import RANGE
from checkpointmanager.etcd import EtcdStore

from .conftest import Opening
from .line import Fate, Line
from .servers import Cluster, free_ports

Manager = CheckpointManager[Any]
LIMIT = 0.1  # seconds: what is in doubt then stays so

fates = pytest.mark.parametrize("fate", [Fate.ANSWER_LOST, Fate.LOST, Fate.LATE], ids=lambda fate: fate.name)


def _create(manager: Manager) -> None:
    manager.create_checkpoint("new", 1)


def _overwrite(manager: Manager) -> None:
    manager.create_checkpoint("a", 2)


def _update(manager: Manager) -> None:
    manager.update_checkpoint("a", lambda number: number + 1)


def _remove(manager: Manager) -> None:
    manager.remove_checkpoint("a")


def _batch(manager: Manager) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("a", 2)
        batch.create_checkpoint("new", 1)
        batch.remove_checkpoint("b")


def _transaction(manager: Manager) -> None:
    with manager.transaction() as transaction:
        transaction.update_checkpoint("a", lambda number: number + 1)
        transaction.create_checkpoint("new", 1)
        transaction.remove_checkpoint("b")


def _replace_damaged(manager: Manager) -> None:
    manager.create_checkpoint("damaged", 5)


# The result of each change, as (current, previous) of the keys that it changes.
CHANGES: dict[Callable[[Manager], None], dict[str, tuple[int | None, int | None]]] = {
    _create: {"new": (1, None)},
    _overwrite: {"a": (2, 1)},
    _update: {"a": (2, 1)},
    _remove: {"a": (None, None)},
    _batch: {"a": (2, 1), "new": (1, None), "b": (None, None)},
    _transaction: {"a": (2, 1), "new": (1, None), "b": (None, None)},
    _replace_damaged: {"damaged": (5, None)},
}
changes = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpointmanager._etcd.client.FIRST_PAUSE", 0.001)


@pytest.fixture
def store(opening: Opening) -> EtcdStore:
    store = opening()
    assert store.commit([Put("damaged", b"rubbish", Current.ABSENT)]) == {}
    return store


@pytest.fixture
def manager(store: EtcdStore) -> Manager:
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    manager.create_checkpoint("b", 1)
    return manager


def found(manager: Manager, keys: object) -> dict[str, tuple[int | None, int | None]]:
    def current(key: str) -> int | None:
        checkpoint = manager.get_checkpoint(key, None)
        return checkpoint.data if checkpoint else None

    def previous(key: str) -> int | None:
        checkpoint = manager.previous_checkpoint(key)
        return checkpoint.data if checkpoint else None

    return {key: (current(key), previous(key)) for key in keys}  # type: ignore[attr-defined]


@fates
@changes
def test_a_change_that_gets_no_answer_is_made_exactly_once(
    store: EtcdStore, manager: Manager, change: Callable[[Manager], None], fate: Fate
) -> None:
    line = Line(store)
    line.disturb(fate)
    change(manager)
    assert found(manager, CHANGES[change]) == CHANGES[change]
    assert not any(line.deliver())
    assert found(manager, CHANGES[change]) == CHANGES[change]
    name = f"{store._layout.prefix}/a.json".encode()
    writes = [kv.version for kv in store._client.ask(Call(5), RANGE, RANGE.request(key=name)).kvs]
    assert writes == ([] if change is _remove else [2 if "a" in CHANGES[change] else 1])


@fates
@changes
def test_each_of_several_lost_answers_is_settled(
    store: EtcdStore, manager: Manager, change: Callable[[Manager], None], fate: Fate
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
    store: EtcdStore, manager: Manager, change: Callable[[Manager], None], fate: Fate
) -> None:
    line = Line(store)
    store._commits._timeout = store._together._timeout = LIMIT
    line.disturb(None if change is _replace_damaged else fate, always=fate)  # the copy to quarantine is made
    with pytest.raises(CheckpointWriteFailed) as failure:
        change(manager)
    assert failure.value.in_doubt
    line.mend()
    change(manager)
    values = {key: current for key, (current, _) in found(manager, CHANGES[change]).items()}
    expected = {key: current for key, (current, _) in CHANGES[change].items()}
    if change in (_update, _transaction) and fate is Fate.ANSWER_LOST:
        expected["a"] = 3  # the first one was made, and the caller has asked for another
    assert values == expected
    assert not any(line.deliver())


@changes
def test_what_was_in_doubt_never_happens_after_the_next_change(
    store: EtcdStore, manager: Manager, change: Callable[[Manager], None]
) -> None:
    line = Line(store)
    store._commits._timeout = store._together._timeout = LIMIT
    line.disturb(None if change is _replace_damaged else Fate.LATE, always=Fate.LATE)
    with pytest.raises(CheckpointWriteFailed):
        change(manager)
    line.mend()
    manager.create_checkpoint("other", 1)  # a change of any key is enough
    before = found(manager, [*CHANGES[change], "other"] if change is not _replace_damaged else ["other"])
    assert line.deliver() != []
    assert found(manager, before) == before


def test_a_key_that_was_removed_while_its_creation_was_in_doubt_does_not_come_back(
    store: EtcdStore, manager: Manager
) -> None:
    line = Line(store)
    store._commits._timeout = LIMIT
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
    assert store._ownership._doubted < store._ownership.hold.written


@pytest.mark.parametrize("change", [_overwrite, _transaction], ids=["overwrite", "transaction"])
def test_a_refusal_after_a_lost_answer_does_not_undo_what_was_made(
    store: EtcdStore, manager: Manager, change: Callable[[Manager], None]
) -> None:
    Line(store).disturb(Fate.ANSWER_LOST, Fate.REFUSED)
    change(manager)
    assert found(manager, CHANGES[change]) == CHANGES[change]


@changes
def test_a_change_that_etcd_makes_and_refuses_because_it_filled_the_database_is_made(
    store: EtcdStore, manager: Manager, change: Callable[[Manager], None]
) -> None:
    Line(store).disturb(None if change is _replace_damaged else Fate.REFUSED_BUT_MADE, Fate.REFUSED_BUT_MADE)
    change(manager)
    assert found(manager, CHANGES[change]) == CHANGES[change]


@pytest.mark.parametrize("change", [_overwrite, _transaction], ids=["overwrite", "transaction"])
def test_a_refusal_after_a_lost_request_leaves_it_in_doubt_and_a_refusal_alone_does_not(
    store: EtcdStore, manager: Manager, change: Callable[[Manager], None]
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
        patch.setattr(store._commits, "_timeout", LIMIT)
        with pytest.raises(CheckpointWriteFailed) as failure:
            manager.create_checkpoint("a", 7)
    assert not failure.value.in_doubt
    assert failure.value.errno == errno.ECONNREFUSED
    assert manager.get_checkpoint("a").data == 1


TakingOver = Callable[[Callable[[Manager], object]], Callable[[], None]]


@pytest.fixture
def taking_over(cluster: Cluster, store: EtcdStore, opening: Opening) -> TakingOver:
    """Between the first try and the second one the lease runs out, and another owner comes and does something."""

    def prepared(act: Callable[[Manager], object]) -> Callable[[], None]:
        tries = iter(range(1, 100))

        def meanwhile() -> None:
            if next(tries) == 2:
                assert store._ownership.lease
                cluster.administer("lease/revoke", ID=str(store._ownership.lease.id))
                act(CheckpointManager(opening(owner="the other")))

        return meanwhile

    return prepared


def _overwrite_all(other: Manager) -> None:
    with other.transaction() as transaction:
        transaction.create_checkpoint("a", 70)
        transaction.create_checkpoint("b", 70)


@pytest.mark.parametrize("change", [_overwrite, _remove, _transaction], ids=["overwrite", "remove", "transaction"])
@pytest.mark.parametrize("act", [id, _overwrite_all], ids=["left alone", "overwritten by the other"])
@pytest.mark.parametrize("fate", [Fate.ANSWER_LOST, Fate.LOST], ids=["made", "not made"])
def test_a_change_without_an_answer_is_known_even_if_another_owner_came_meanwhile(
    manager: Manager,
    taking_over: TakingOver,
    change: Callable[[Manager], None],
    act: Callable[[Manager], object],
    fate: Fate,
) -> None:
    Line(manager._store).disturb(fate, Fate.LOST, meanwhile=taking_over(act))  # type: ignore[arg-type]
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


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_a_change_that_arrives_after_another_owner_came_is_refused(
    manager: Manager, taking_over: TakingOver, change: Callable[[Manager], None]
) -> None:
    line = Line(manager._store)  # type: ignore[arg-type]
    first = None if change is _replace_damaged else Fate.LATE  # the copy to quarantine is made
    line.disturb(first, Fate.LATE, Fate.LATE, meanwhile=taking_over(id))
    with pytest.raises(DirectoryLocked):
        change(manager)
    arrived = line.deliver()
    assert arrived
    assert not any(arrived)


def test_it_is_in_doubt_if_the_moment_before_the_other_owner_is_compacted(
    cluster: Cluster, store: EtcdStore, manager: Manager, taking_over: TakingOver
) -> None:
    def act(other: Manager) -> None:
        for number in range(3):
            other.create_checkpoint("a", 70 + number)
        cluster.administer("kv/compaction", revision=str(store.identity("a")))

    Line(store).disturb(Fate.ANSWER_LOST, Fate.LOST, meanwhile=taking_over(act))
    with pytest.raises(CheckpointWriteFailed) as failure:
        manager.create_checkpoint("a", 2)
    assert failure.value.in_doubt


def test_of_a_batch_in_pieces_only_the_piece_that_failed_is_in_doubt(store: EtcdStore, manager: Manager) -> None:
    line = Line(store)
    store._commits._timeout = LIMIT
    fates = [None, *[Fate.LOST] * 100]
    line.disturb(*fates, always=Fate.LOST)
    with pytest.raises(BatchFailed) as failure, manager.batch() as batch:
        for number in range(100):
            batch.create_checkpoint(f"k{number}", number)
    failed = set(failure.value.failures)
    assert failed == {f"k{number}" for number in range(60, 100)}
    line.mend()
    assert {key for key in manager.list_checkpoints() if key.startswith("k")} == {f"k{number}" for number in range(60)}


def test_when_no_member_answers_the_rest_of_a_batch_is_not_even_tried(
    store: EtcdStore, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(store)
    tried = _tried(store, monkeypatch)
    store._commits._timeout = LIMIT
    line.disturb(always=Fate.LOST)
    with pytest.raises(BatchFailed) as failure, manager.batch() as batch:
        for number in range(200):
            batch.create_checkpoint(f"k{number}", number)
    in_doubt = {key for key, error in failure.value.failures.items() if getattr(error, "in_doubt", False)}
    assert in_doubt == {f"k{number}" for number in range(60)}
    assert len(failure.value.failures) == 200
    assert len(tried) == 1


def _tried(store: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pieces of batches that are tried from now on."""
    make = store._commits._make
    tried: list[Any] = []

    def making(piece: Any) -> None:
        tried.append(piece)
        make(piece)

    monkeypatch.setattr(store._commits, "_make", making)
    return tried


def test_a_lock_lost_in_the_midst_of_a_batch_is_the_error_of_what_was_not_made(
    cluster: Cluster, store: EtcdStore, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = store._commits._make

    def make_and_lose(piece: Any) -> None:
        make(piece)
        assert store._ownership.lease
        cluster.administer("lease/revoke", ID=str(store._ownership.lease.id))

    monkeypatch.setattr(store._commits, "_make", make_and_lose)
    with pytest.raises(BatchFailed) as failure, manager.batch() as batch:
        for number in range(150):
            batch.create_checkpoint(f"k{number}", number)
    assert set(failure.value.failures) == {f"k{number}" for number in range(60, 150)}
    assert not failure.value.in_doubt
    assert failure.value.errno == errno.ENOLCK
    with pytest.raises(DirectoryLocked):
        manager.create_checkpoint("k1", 1)


def test_a_transaction_in_doubt_says_so(store: EtcdStore, manager: Manager) -> None:
    line = Line(store)
    store._together._timeout = LIMIT
    line.disturb(always=Fate.LOST)
    with pytest.raises(TransactionFailed) as failure:
        _transaction(manager)
    assert failure.value.in_doubt
    assert not failure.value.committed


def test_a_copy_is_put_back_once_and_deleted_although_answers_are_lost(store: EtcdStore, manager: Manager) -> None:
    copy = store.quarantine("damaged", Reason.NOT_JSON)
    manager.create_checkpoint("damaged", 5)
    replaced = store.read("damaged")
    line = Line(store)
    line.disturb(Fate.ANSWER_LOST)
    kept = store.restore_copy(copy)
    assert store.read("damaged") == b"rubbish"
    assert dict(store.snapshot())[kept.removeprefix(f"{store.path}/")] == replaced
    assert store.quarantined() == {"damaged": [copy, kept]}
    line.disturb(Fate.ANSWER_LOST)
    store.delete_copy(copy)
    assert store.quarantined() == {"damaged": [kept]}


def test_a_copy_that_was_put_back_after_a_lost_answer_and_then_removed_does_not_come_back(
    store: EtcdStore, manager: Manager
) -> None:
    copy = store.quarantine("damaged", Reason.NOT_JSON)
    manager.remove_checkpoint("damaged")
    line = Line(store)
    line.disturb(Fate.LATE)
    assert store.restore_copy(copy) == ""  # the second attempt makes it, while the first is still on its way
    manager.remove_checkpoint("damaged")
    assert line.deliver() == [False]
    assert "damaged" not in manager


def test_when_the_lock_cannot_be_written_again_each_error_says_why_and_the_rest_of_a_batch_is_not_even_tried(
    store: EtcdStore, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(store)
    store._commits._timeout = LIMIT
    line.disturb(always=Fate.LOST)
    with pytest.raises(CheckpointWriteFailed):
        manager.create_checkpoint("a", 2)
    tried = _tried(store, monkeypatch)
    failures = store.commit([Put(f"k{number}", b"", Current.ABSENT) for number in range(200)])
    assert len(failures) == 200
    assert all("no answer within 0.1 s" in str(error) and not error.in_doubt for error in failures.values())
    assert len(tried) == 1
