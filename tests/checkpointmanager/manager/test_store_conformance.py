"""One suite over every Store: whatever keeps the bytes, the manager may rely on the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointmanager import CheckpointNotFound, Current, FileStore, MemoryStore, Put, Reason, Store
from checkpointmanager._format.reason import Damaged

from ..contents import quarantined


@pytest.fixture(params=["FileStore on pyfakefs", "FileStore on disk", "MemoryStore"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    store: Store
    if request.param == "MemoryStore":
        store = MemoryStore()
    else:
        store = FileStore(request.getfixturevalue("directory" if "pyfakefs" in request.param else "real_directory"))
    yield store
    store.close()


def put(store: Store, blob: bytes, current: Current, key: str = "a") -> None:
    with store.writing():
        assert store.commit([Put(key, blob, current)]) == {}


def kept(store: Store, key: str) -> list[bytes]:
    if isinstance(store, MemoryStore):
        return [blob for _, blob in store.quarantined.get(key, [])]
    return quarantined(Path(store.path))


def has_previous(store: Store, key: str = "a") -> bool:
    try:
        store.read(key, previous=True)
    except CheckpointNotFound:
        return False
    return True


def test_it_has_the_protocol(store: Store) -> None:
    assert isinstance(store, Store)
    assert store.exclusive
    assert store.path_of("a").startswith(store.path)


def test_nothing_is_there_at_first(store: Store) -> None:
    assert store.keys() == []
    assert not store.exists("a")
    with pytest.raises(CheckpointNotFound) as caught:
        store.read("a")
    assert caught.value.key == "a"
    assert not has_previous(store)


def test_what_was_put_is_read(store: Store) -> None:
    put(store, b"one", Current.ABSENT)

    assert store.keys() == ["a"]
    assert store.exists("a")
    assert store.read("a") == b"one"
    assert not has_previous(store)


def test_empty_bytes_are_bytes(store: Store) -> None:
    put(store, b"", Current.ABSENT)

    assert store.exists("a")
    assert store.read("a") == b""


@pytest.mark.parametrize("current", [Current.FOUND, Current.OURS])
def test_a_good_checkpoint_becomes_the_previous_generation(store: Store, current: Current) -> None:
    put(store, b"one", Current.ABSENT)
    put(store, b"two", current)
    put(store, b"three", current)

    assert store.read("a") == b"three"
    assert store.read("a", previous=True) == b"two"


def test_damaged_bytes_never_become_the_previous_generation(store: Store) -> None:
    put(store, b"one", Current.ABSENT)
    put(store, b"two", Current.OURS)
    put(store, b"three", Current.DAMAGED)

    assert store.read("a") == b"three"
    assert store.read("a", previous=True) == b"one"


def test_a_new_checkpoint_forgets_the_previous_generation_of_a_removed_one(store: Store) -> None:
    put(store, b"one", Current.ABSENT)
    put(store, b"two", Current.OURS)
    put(store, b"three", Current.ABSENT)

    assert store.read("a") == b"three"
    assert not has_previous(store)


@pytest.mark.parametrize("current", [Current.FOUND, Current.OURS, Current.DAMAGED])
def test_a_checkpoint_removed_by_hand_is_written_all_the_same(store: Store, current: Current) -> None:
    put(store, b"one", current)

    assert store.read("a") == b"one"
    assert not has_previous(store)


def test_a_removal_takes_both_generations(store: Store) -> None:
    put(store, b"one", Current.ABSENT)
    put(store, b"two", Current.OURS)

    assert store.commit([], ["a"]) == {}

    assert store.keys() == []
    assert not store.exists("a")
    assert not has_previous(store)


def test_removing_what_is_not_there_is_fine(store: Store) -> None:
    assert store.commit([], ["a", "a"]) == {}


def test_many_changes_in_one_call(store: Store) -> None:
    put(store, b"going", Current.ABSENT, "going")

    failures = store.commit([Put(f"k{n}", b"%d" % n, Current.ABSENT) for n in range(130)], ["going"])

    assert failures == {}
    assert sorted(store.keys()) == sorted(f"k{n}" for n in range(130))
    assert all(store.read(f"k{n}") == b"%d" % n for n in range(130))


def test_an_empty_commit_does_nothing(store: Store) -> None:
    assert store.commit([]) == {}
    assert store.keys() == []


def test_keys_with_dots_are_told_apart(store: Store) -> None:
    for key in ("a", "a.json", "a.b", "a-b", "A"):
        put(store, key.encode(), Current.ABSENT, key)

    assert sorted(store.keys()) == sorted(["a", "a.json", "a.b", "a-b", "A"])
    assert store.read("a.json") == b"a.json"


def test_more_than_max_bytes_is_not_read(store: Store) -> None:
    put(store, b"12345", Current.ABSENT)
    store.max_bytes = 5
    assert store.read("a") == b"12345"

    store.max_bytes = 4
    with pytest.raises(Damaged) as caught:
        store.read("a")
    assert caught.value.reason is Reason.TOO_LARGE


def test_quarantine_copies_and_leaves_the_name_alone(store: Store) -> None:
    put(store, b"bad", Current.ABSENT)

    assert store.quarantine("a", Reason.TRUNCATED).startswith(store.path)

    assert store.read("a") == b"bad"
    assert kept(store, "a") == [b"bad"]


def test_quarantine_keeps_the_newest_four_of_a_key(store: Store) -> None:
    for n in range(6):
        put(store, b"bad %d" % n, Current.DAMAGED)
        store.quarantine("a", Reason.CHECKSUM_MISMATCH)

    assert kept(store, "a") == [b"bad 2", b"bad 3", b"bad 4", b"bad 5"]


def test_quarantine_of_one_key_does_not_push_out_another(store: Store) -> None:
    put(store, b"other", Current.ABSENT, "a.1")
    store.quarantine("a.1", Reason.EMPTY)
    for n in range(5):
        put(store, b"bad %d" % n, Current.DAMAGED)
        store.quarantine("a", Reason.EMPTY)

    assert b"other" in kept(store, "a.1")


def test_a_repeated_quarantine_keeps_one_copy(store: Store) -> None:
    put(store, b"bad", Current.ABSENT)
    store.quarantine("a", Reason.EMPTY)
    store.quarantine("a", Reason.EMPTY)

    assert kept(store, "a") == [b"bad"]


def test_writing_may_be_entered_twice(store: Store) -> None:
    with store.writing(), store.writing():
        put(store, b"one", Current.ABSENT)
    assert store.read("a") == b"one"


def test_closing_twice_is_fine(store: Store) -> None:
    store.close()
    store.close()
