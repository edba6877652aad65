"""How the store reads: in as few requests as possible, many keys at once, and a load or a list as of one moment."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, Event, Put, Reason, Replaces
from checkpointmanager.etcd import EtcdStore, EtcdUnavailable

from ..processes import run_together
from .client import Etcd
from .conftest import Opening
from .line import Line, Request

Manager = CheckpointManager[Any]
KEYS = [f"k{number:03}" for number in range(100)]
MANY = [f"k{number:03}" for number in range(300)]  # three pages of values


def create_in_batch(manager: Manager, value: int = 1, keys: list[str] = KEYS) -> None:
    with manager.batch() as batch:
        for key in keys:
            batch.create_checkpoint(key, value)


def remove_in_batch(manager: Manager) -> None:
    with manager.batch() as batch:
        for key in KEYS:
            batch.remove_checkpoint(key)


def create_in_transaction(manager: Manager) -> None:
    with manager.transaction() as transaction:
        for key in KEYS:
            transaction.create_checkpoint(key, 1)


def update_in_transaction(manager: Manager) -> None:
    with manager.transaction() as transaction:
        for key in KEYS:
            transaction.update_checkpoint(key, lambda number: (number or 0) + 1, None)


changes = pytest.mark.parametrize(
    "change", [create_in_batch, remove_in_batch, create_in_transaction, update_in_transaction]
)


def after_request(number: int, line: Line, act: Callable[[], object]) -> None:
    """The next requests are counted from 1; after this one is answered, `act` is called."""
    del line.sent[:]

    def carry(request: Request) -> Any:
        reply = request.send()
        if len(line.sent) == number:
            act()
        return reply

    line.carry = carry


def compact(etcd: Etcd) -> None:
    """Up to a newer revision than anybody has read."""
    etcd.compact(etcd.put("/other", b""))


def test_a_first_write_takes_three_requests_and_every_further_one_takes_one(store: EtcdStore, line: Line) -> None:
    manager: Manager = CheckpointManager(store)
    del line.sent[:]
    manager.create_checkpoint("a", 1)
    manager.create_checkpoint("a", 2)
    manager.remove_checkpoint("a")
    assert line.sent == ["Range", "Range", "Txn", "Txn", "Txn"], "the key and its previous generation first"


@changes
@pytest.mark.parametrize("loaded", [False, True], ids=["that nobody knows", "that were loaded"])
def test_a_hundred_keys_are_read_in_pages(
    opening: Opening, line: Line, change: Callable[[Manager], None], loaded: bool
) -> None:
    if loaded:
        with CheckpointManager[Any](opening()) as before:
            create_in_batch(before)
    manager: Manager = CheckpointManager(opening())
    manager.load()
    del line.sent[:]
    change(manager)
    assert len(line.sent) <= (3 if loaded else 4)  # the keys, their previous generations if new, one or two changes
    assert len(manager.load().checkpoints) == (0 if change is remove_in_batch else 100)


def test_a_batch_of_keys_that_the_owner_wrote_is_read_by_no_request(store: EtcdStore, line: Line) -> None:
    manager: Manager = CheckpointManager(store)
    create_in_batch(manager)
    del line.sent[:]
    create_in_batch(manager, 2)
    assert line.sent == ["Txn", "Txn"]


def test_what_a_change_or_a_load_has_read_ahead_is_not_read_after_it(store: EtcdStore, opening: Opening) -> None:
    with CheckpointManager[Any](store) as first:
        create_in_batch(first)
    owner: Manager = CheckpointManager(opening())

    def fail(_: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), owner.transaction() as transaction:
        for key in KEYS:
            transaction.update_checkpoint(key, fail)
    owner.create_checkpoint(KEYS[50], 2)
    create_in_batch(owner, 3, KEYS[:40])
    assert [owner.get_checkpoint(key).data for key in (KEYS[1], KEYS[50], KEYS[99])] == [3, 2, 1]
    reader: Manager = CheckpointManager(opening(read_only=True))
    reader.load()
    owner.create_checkpoint(KEYS[99], 4)
    assert reader.get_checkpoint(KEYS[99]).data == 4


def test_values_that_were_prefetched_are_not_used_after_a_write(store: EtcdStore, opening: Opening) -> None:
    manager: Manager = CheckpointManager(store)
    create_in_batch(manager)
    other = opening(read_only=True)
    for prefetching in (store, other):
        assert len(prefetching.keys()) == 100
        prefetching.prefetch(KEYS)
    manager.create_checkpoint("k036", 360)
    other.prefetch([])
    assert [CheckpointManager[Any](one).get_checkpoint("k036").data for one in (store, other)] == [360, 360]


@pytest.mark.parametrize("repair", [False, True])
def test_a_load_sees_a_transaction_as_a_whole_or_not_at_all(
    store: EtcdStore, opening: Opening, line: Line, repair: bool
) -> None:
    manager: Manager = CheckpointManager(store)
    create_in_batch(manager, 1, MANY)
    values = iter(range(2, 1000))

    def write() -> None:
        value = next(values)
        with manager.transaction() as transaction:
            for key in [*MANY[::3], f"new-{value}"]:
                transaction.create_checkpoint(key, value)

    def write_after_each(request: Request) -> Any:
        reply = request.send()
        write()
        return reply

    write()
    reader: Manager = CheckpointManager(opening(read_only=True))
    del line.sent[:]
    line.carry = write_after_each
    loaded = reader.load(repair=repair).checkpoints
    expected = {**dict.fromkeys(MANY, 1), **dict.fromkeys(MANY[::3], 2), "new-2": 2}
    assert {key: found.data for key, found in loaded.items()} == expected
    assert line.sent == ["Range", "Txn", "Txn", "Txn"], "the list and three pages"
    line.mend()
    assert reader.get_checkpoint(MANY[0]).data > 2, "after the load, reads are of now"


@pytest.mark.parametrize("read", [CheckpointManager.load, CheckpointManager.verify])
def test_after_a_load_that_failed_reads_are_of_now_although_its_error_is_kept(
    store: EtcdStore, opening: Opening, line: Line, read: Callable[[Manager], object]
) -> None:
    manager: Manager = CheckpointManager(store)
    create_in_batch(manager, 1, MANY)
    reader: Manager = CheckpointManager(opening(read_only=True))
    del line.sent[:]

    def fail_the_second_page(request: Request) -> Any:
        if len(line.sent) == 3:
            raise request.end_of_time()
        return request.send()

    line.carry = fail_the_second_page
    with pytest.raises(EtcdUnavailable) as kept:
        read(reader)
    line.mend()
    create_in_batch(manager, 2, MANY)
    assert [reader.get_checkpoint(key).data for key in (MANY[1], MANY[200], MANY[299])] == [2, 2, 2]
    assert kept.value.errno == errno.ETIMEDOUT


def test_a_load_whose_moment_is_compacted_fails_and_can_be_repeated(store: EtcdStore, line: Line, etcd: Etcd) -> None:
    manager: Manager = CheckpointManager(store)
    create_in_batch(manager, 1, MANY)
    after_request(2, line, lambda: compact(etcd))
    with pytest.raises(EtcdUnavailable) as failure:
        manager.load()
    assert failure.value.errno == errno.ERANGE
    assert len(manager.load().checkpoints) == 300


def test_a_change_made_during_a_load_is_based_on_now_and_read_by_the_thread_that_made_it(store: EtcdStore) -> None:
    counter: Manager = CheckpointManager(store)
    counter.create_checkpoint("b", 1)
    assert store.commit([Put("a", b"rubbish", 1, Replaces.ABSENT)]) == {}
    seen: list[Any] = []

    def count(number: int) -> int:
        return number + 1

    def on_damage(_: Event) -> None:
        run_together(lambda: counter.update_checkpoint("b", count))  # by another thread, while this one loads
        manager.update_checkpoint("b", count)
        seen.append(manager.get_checkpoint("b").data)

    manager: Manager = CheckpointManager(store, on_event=on_damage)
    assert list(manager.load().problems) == ["a"]
    assert seen == [3]


@pytest.fixture
def long_list(store: EtcdStore, line: Line) -> list[str]:
    """Keys that are listed in two pages."""
    keys = [f"k{number:04}" for number in range(1001)]
    assert store.commit([Put(key, b"", 1, Replaces.ABSENT) for key in keys]) == {}
    del line.sent[:]
    return keys


def test_keys_are_listed_page_by_page_as_of_one_moment(
    store: EtcdStore, prefix: str, long_list: list[str], line: Line, etcd: Etcd
) -> None:
    after_request(1, line, lambda: etcd.delete(f"{prefix}/{long_list[-1]}.json"))
    assert sorted(store.keys()) == long_list
    assert line.sent == ["Range"] * 2
    assert sorted(store.keys()) == long_list[:-1]


def test_a_list_starts_again_when_its_moment_is_compacted(
    store: EtcdStore, long_list: list[str], line: Line, etcd: Etcd
) -> None:
    after_request(1, line, lambda: compact(etcd))
    assert sorted(store.keys()) == long_list
    assert line.sent == ["Range"] * 4, "the second page was refused"


def write_alone(manager: Manager, number: int) -> None:
    manager.create_checkpoint("a", number)


def write_in_batch(manager: Manager, number: int) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("a", number)
        batch.create_checkpoint("b", number)


def write_in_transaction(manager: Manager, number: int) -> None:
    with manager.transaction() as transaction:
        transaction.create_checkpoint("a", number)
        transaction.create_checkpoint("b", number)


writes = pytest.mark.parametrize("write", [write_alone, write_in_batch, write_in_transaction])


@pytest.mark.usefixtures("_compared")
@writes
def test_a_read_that_is_overtaken_by_a_write_does_not_choose_the_previous_generation(
    store: EtcdStore, line: Line, write: Callable[[Manager, int], None]
) -> None:
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    after_request(1, line, lambda: manager.create_checkpoint("a", 2))
    store.read("a")  # returns what "a" was when it was asked for
    line.mend()
    write(manager, 3)
    assert _previous(manager) == 2


@pytest.mark.usefixtures("_compared")
@writes
@pytest.mark.parametrize("by_hand", ["changed", "removed"])
def test_a_change_by_hand_is_noticed_and_becomes_the_previous_generation(
    store: EtcdStore, etcd: Etcd, prefix: str, write: Callable[[Manager, int], None], by_hand: str
) -> None:
    manager: Manager = CheckpointManager(store)
    manager.create_checkpoint("a", 1)
    manager.create_checkpoint("a", 2)
    if by_hand == "changed":
        etcd.put(f"{prefix}/a.json", store.read("a", previous=True))
    else:
        etcd.delete(f"{prefix}/a.json")
    write(manager, 3)
    assert manager.get_checkpoint("a").data == 3
    assert _previous(manager) == (1 if by_hand == "changed" else None)


def _previous(manager: Manager) -> Any:
    checkpoint = manager.previous_checkpoint("a")
    return checkpoint.data if checkpoint else None


def test_only_16_mib_are_remembered_and_the_oldest_are_read_again(store: EtcdStore, line: Line) -> None:
    keys = [f"k{number}" for number in range(30)]
    for key in keys:
        assert store.commit([Put(key, b"x" * 700_000, 1, Replaces.ABSENT)]) == {}
    del line.sent[:]
    for key in (keys[0], keys[-1]):
        assert store.commit([Put(key, b"", 1, Replaces.WHOLE)]) == {}
    assert line.sent == ["Txn", "Txn", "Txn"], "the first one was read before it was replaced"


def test_quarantine_keeps_the_value_at_the_moment_of_the_copy(
    store: EtcdStore, etcd: Etcd, prefix: str, line: Line
) -> None:
    store.commit([Put("a", b"bad 1", 1, Replaces.ABSENT)])
    after_request(1, line, lambda: etcd.put(f"{prefix}/a.json", b"bad 2"))
    kept = store.quarantine("a", Reason.CHECKSUM_MISMATCH)
    assert dict(store.snapshot())[kept.removeprefix(f"{store.path}/")] == b"bad 2"
