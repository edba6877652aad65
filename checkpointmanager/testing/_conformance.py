"""What the manager requires of every Store, as tests. The author of a Store inherits them and adds a fixture.

They use only the protocol, so they apply to bytes on a disk, in memory or behind a network. They need pytest only for
the fixture `store` of the subclass.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from .._changeset import Transaction
from .._errors import CheckpointNotFound, CorruptCheckpoint, TransactionFailed
from .._manager import CheckpointManager
from .._schema import Schema
from .._store import Put, Remove, Replaces, Store, is_store
from ..format import Damaged, Header, Reason, open_sealed, seal

MANY = 130  # more than any store should handle in one step
CONFORMANCE: Schema[Any] = Schema("Conformance")

_generations = itertools.count(1)  # always above every earlier one of the same key


class StoreConformance:
    """Inherit from it in a test class with a fixture `store`: a new, empty, exclusive Store that the fixture closes."""

    def test_it_has_the_protocol(self, store: Store) -> None:
        assert is_store(store), "a method or attribute of checkpointmanager.Store is missing"
        assert store.exclusive
        assert store.max_bytes > 0
        assert store.path_of("a").startswith(store.path)
        assert store.path_of("a") != store.path_of("b")

    def test_nothing_is_there_at_first(self, store: Store) -> None:
        assert store.keys() == []
        assert not store.exists("a")
        assert _raised(CheckpointNotFound, lambda: store.read("a")).key == "a"
        assert not _has_previous(store)
        assert not store.quarantined()

    def test_what_was_put_is_read(self, store: Store) -> None:
        _put(store, b"one", Replaces.ABSENT)
        assert store.keys() == ["a"]
        assert store.exists("a")
        assert _read(store, "a") == b"one"
        assert not _has_previous(store)

    def test_bytes_are_not_changed(self, store: Store) -> None:
        for data in (b"1", b' {"a" :  1}  ', b'"' + b"x" * 5000 + b'"', '"\u2028é"'.encode()):
            put = _change("a", data, Replaces.WHOLE)
            with store.writing():
                assert store.commit([put]) == {}
            assert store.exists("a")
            assert store.read("a") == put.blob

    def test_a_good_checkpoint_becomes_the_previous_generation(self, store: Store) -> None:
        _put(store, b"one", Replaces.ABSENT)
        _put(store, b"two", Replaces.WHOLE)
        _put(store, b"three", Replaces.WHOLE)
        assert _read(store, "a") == b"three"
        assert _read(store, "a", previous=True) == b"two"

    def test_damaged_bytes_never_become_the_previous_generation(self, store: Store) -> None:
        for key, together in (("commit", False), ("transaction", True)):
            _put(store, b"one", Replaces.ABSENT, key)
            _put(store, b"two", Replaces.WHOLE, key)
            _put(store, b"three", Replaces.DAMAGED, key, together=together)
            assert _read(store, key) == b"three"
            assert _read(store, key, previous=True) == b"one"

    def test_a_new_checkpoint_has_no_previous_generation_of_a_removed_one(self, store: Store) -> None:
        for key, together in (("commit", False), ("transaction", True)):
            _put(store, b"one", Replaces.ABSENT, key)
            _put(store, b"two", Replaces.WHOLE, key)
            _put(store, b"three", Replaces.ABSENT, key, together=together)
            assert _read(store, key) == b"three"
            assert not _has_previous(store, key)

    def test_what_was_removed_meanwhile_is_still_written(self, store: Store) -> None:
        for replaces in (Replaces.WHOLE, Replaces.DAMAGED):
            _put(store, b"one", replaces, replaces.name)
            assert _read(store, replaces.name) == b"one"
            assert not _has_previous(store, replaces.name)

    def test_a_removal_takes_both_generations(self, store: Store) -> None:
        _put(store, b"one", Replaces.ABSENT)
        _put(store, b"two", Replaces.WHOLE)
        _remove(store, "a")
        assert store.keys() == []
        assert not store.exists("a")
        _raised(CheckpointNotFound, lambda: store.read("a"))
        assert not _has_previous(store)

    def test_removing_what_is_not_there_is_fine(self, store: Store) -> None:
        _remove(store, "a", "a")

    def test_many_changes_in_one_call(self, store: Store) -> None:
        for together in (False, True):
            with store.writing():
                puts = [_change(f"k{number}", b"%d" % number, Replaces.ABSENT) for number in range(MANY)]
                assert store.commit(puts, together=together) == {}
                assert all(_read(store, f"k{number}") == b"%d" % number for number in range(MANY))
                removals = [Remove(f"k{number}", next(_generations)) for number in range(1, MANY)]
                assert store.commit([_change("k0", b"new", Replaces.WHOLE), *removals], together=together) == {}
            assert store.keys() == ["k0"]
            assert _read(store, "k0") == b"new"

    def test_an_empty_commit_does_nothing(self, store: Store) -> None:
        with store.writing():
            assert store.commit([]) == {}
            assert store.commit([], together=True) == {}
        assert store.keys() == []

    def test_a_transaction_makes_all_its_changes(self, store: Store) -> None:
        _put(store, b"one", Replaces.ABSENT, "changed")
        _put(store, b"one", Replaces.ABSENT, "going")
        _put(store, b"two", Replaces.WHOLE, "going")
        with store.writing():
            puts = [_change("changed", b"two", Replaces.WHOLE), _change("made", b"first", Replaces.ABSENT)]
            removals = [Remove(key, next(_generations)) for key in ("going", "missing")]
            store.commit([*puts, *removals], together=True)
        assert sorted(store.keys()) == ["changed", "made"]
        assert [_read(store, key) for key in ("changed", "made")] == [b"two", b"first"]
        assert _read(store, "changed", previous=True) == b"one"
        assert [key for key in ("made", "going", "missing") if _has_previous(store, key)] == []
        assert not store.exists("going")

    def test_keys_that_look_alike_are_kept_apart(self, store: Store) -> None:
        keys = ["a", "a.json", "a.b", "a-b", "a_b", "A", "b.a", "x" * 120]
        for key in keys:
            _put(store, key.encode(), Replaces.ABSENT, key)
        assert sorted(store.keys()) == sorted(keys)
        assert [_read(store, key) for key in keys] == [key.encode() for key in keys]

    def test_the_list_of_keys_belongs_to_the_caller(self, store: Store) -> None:
        _put(store, b"one", Replaces.ABSENT)
        store.keys().clear()
        assert store.keys() == ["a"]

    def test_a_hint_about_what_will_be_read_never_fails(self, store: Store) -> None:
        _put(store, b"one", Replaces.ABSENT)
        store.prefetch([])
        store.prefetch(["a", "missing", "a"])
        assert _read(store, "a") == b"one"

    def test_what_was_announced_is_read_as_it_is_then(self, store: Store) -> None:
        _put(store, b"one", Replaces.ABSENT)
        store.prefetch(["a"])
        _put(store, b"two", Replaces.WHOLE)
        assert _read(store, "a") == b"two"
        store.prefetch(["a"])
        _remove(store, "a")
        _raised(CheckpointNotFound, lambda: store.read("a"))

    def test_more_than_max_bytes_is_not_read(self, store: Store) -> None:
        _put(store, b"12345", Replaces.ABSENT)
        size = len(store.read("a"))
        store.max_bytes = size
        assert _read(store, "a") == b"12345"
        store.max_bytes = size - 1
        assert _raised(Damaged, lambda: store.read("a")).reason is Reason.TOO_LARGE

    def test_quarantine_copies_and_leaves_the_name_alone(self, store: Store) -> None:
        _put(store, b"bad", Replaces.ABSENT)
        kept = store.quarantine("a", Reason.TRUNCATED)
        assert kept.startswith(store.path)
        assert _read(store, "a") == b"bad"
        assert _quarantined(store) == {"a": [kept]}

    def test_a_copy_survives_the_checkpoint(self, store: Store) -> None:
        _put(store, b"bad", Replaces.ABSENT)
        kept = store.quarantine("a", Reason.EMPTY)
        _put(store, b"good", Replaces.DAMAGED)
        _remove(store, "a")
        assert _quarantined(store) == {"a": [kept]}

    def test_copies_are_listed_oldest_first_and_the_newest_is_kept(self, store: Store) -> None:
        kept = []
        for number in range(12):
            _put(store, b"bad %d" % number, Replaces.DAMAGED)
            kept.append(store.quarantine("a", Reason.CHECKSUM_MISMATCH))
        listed = _quarantined(store)["a"]
        assert 0 < len(listed) <= len(kept)
        assert listed == kept[-len(listed) :]

    def test_the_copies_of_one_key_do_not_push_out_those_of_another(self, store: Store) -> None:
        _put(store, b"other", Replaces.ABSENT, "a.1")
        kept = store.quarantine("a.1", Reason.EMPTY)
        for number in range(12):
            _put(store, b"bad %d" % number, Replaces.DAMAGED)
            store.quarantine("a", Reason.EMPTY)
        assert _quarantined(store)["a.1"] == [kept]

    def test_a_repeated_quarantine_keeps_one_copy(self, store: Store) -> None:
        _put(store, b"bad", Replaces.ABSENT)
        assert store.quarantine("a", Reason.EMPTY) == store.quarantine("a", Reason.EMPTY)
        assert len(_quarantined(store)["a"]) == 1

    def test_writing_may_be_entered_twice(self, store: Store) -> None:
        with store.writing(), store.writing():
            store.check_owner()
            store.check_owner(["a"])
            assert store.commit([_change("a", b"one", Replaces.ABSENT)]) == {}
        assert _read(store, "a") == b"one"

    def test_many_threads_may_write_and_read(self, store: Store) -> None:
        def write(thread: int) -> None:
            for number in range(5):
                replaces = Replaces.WHOLE if number else Replaces.ABSENT
                _put(store, b"%d of %d" % (number, thread), replaces, f"k{thread}")
                assert _read(store, f"k{thread}") == b"%d of %d" % (number, thread)
                assert f"k{thread}" in set(store.keys())

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))
        assert sorted(store.keys()) == [f"k{thread}" for thread in range(8)]

    def test_keys_listed_by_many_threads_are_complete(self, store: Store) -> None:
        with store.writing():
            assert store.commit([_change(f"k{number}", b"0", Replaces.ABSENT) for number in range(50)]) == {}
        with ThreadPoolExecutor(4) as pool:
            counts = pool.map(lambda _: {len(store.keys()) for _ in range(200)}, range(4))
        assert set().union(*counts) == {50}

    def test_a_manager_works_with_it(self, store: Store) -> None:
        manager: CheckpointManager[Any] = CheckpointManager(store, CONFORMANCE)
        manager.create_checkpoint("a", {"number": 1})
        manager.update_checkpoint("a", lambda data: {"number": data["number"] + 1})
        with manager.batch() as batch:
            batch.create_checkpoint("b", "other")
            batch.create_checkpoint("c", "third")
            batch.remove_checkpoint("c")
        assert manager.get_checkpoint("a").data == {"number": 2}
        previous = manager.previous_checkpoint("a")
        assert previous
        assert previous.data == {"number": 1}
        manager.remove_checkpoint("b")
        assert manager.list_checkpoints() == ["a"]

    def test_a_transaction_of_a_manager_is_made_or_not(self, store: Store) -> None:
        manager: CheckpointManager[Any] = CheckpointManager(store, CONFORMANCE)
        manager.create_checkpoint("a", 1)
        manager.create_checkpoint("b", 1)
        with manager.transaction() as transaction:
            transaction.update_checkpoint("a", lambda number: number + 1)
            transaction.remove_checkpoint("b")
            transaction.create_checkpoint("c", 5)
        assert {key: found.data for key, found in manager.load().checkpoints.items()} == {"a": 2, "c": 5}

        def broken(transaction: Transaction[Any]) -> None:
            with transaction:
                transaction.create_checkpoint("a", 9)
                transaction.update_checkpoint("b", lambda number: number + 1)

        _raised(TransactionFailed, lambda: broken(manager.transaction()))
        assert {key: found.data for key, found in manager.load().checkpoints.items()} == {"a": 2, "c": 5}

    def test_a_manager_finds_damage_in_it_and_goes_back(self, store: Store) -> None:
        manager: CheckpointManager[Any] = CheckpointManager(store, CONFORMANCE)
        manager.create_checkpoint("a", 1)
        manager.create_checkpoint("a", 2)
        _put(store, b"no JSON", Replaces.DAMAGED)
        _raised(CorruptCheckpoint, lambda: manager.get_checkpoint("a"))
        recovery = manager.recover_checkpoint("a", rollback=True)
        assert manager.get_checkpoint("a").data == 1
        assert _quarantined(store) == {"a": [recovery.quarantined]}

    def test_closing_twice_is_fine(self, store: Store) -> None:
        store.close()
        store.close()


def _change(key: str, data: bytes, replaces: Replaces) -> Put:
    generation = next(_generations)
    header = Header(CONFORMANCE.kind, 1, 1, key, generation, "", datetime.now(UTC))
    return Put(key, seal(header, data), generation, replaces)


def _put(store: Store, data: bytes, replaces: Replaces, key: str = "a", *, together: bool = False) -> None:
    with store.writing():
        assert store.commit([_change(key, data, replaces)], together=together) == {}


def _remove(store: Store, *keys: str) -> None:
    with store.writing():
        assert store.commit([Remove(key, next(_generations)) for key in keys]) == {}


def _read(store: Store, key: str, *, previous: bool = False) -> bytes:
    return bytes(open_sealed(store.read(key, previous=previous), key)[1])


def _has_previous(store: Store, key: str = "a") -> bool:
    try:
        store.read(key, previous=True)
    except CheckpointNotFound:
        return False
    return True


def _quarantined(store: Store) -> dict[str, list[str]]:
    return {key: list(kept) for key, kept in store.quarantined().items() if kept}


def _raised(kind: type[Any], act: Callable[[], object]) -> Any:
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
