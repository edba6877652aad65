"""Our stores pass the suite that the kit offers for any store, and keep the promises that only they make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointmanager import Current, FileStore, MemoryStore, Put, Reason, Store
from checkpointmanager.testing import StoreConformance


class TestFileStoreOnDisk(StoreConformance):
    @pytest.fixture
    def store(self, real_directory: Path) -> Iterator[Store]:
        store = FileStore(real_directory)
        yield store
        store.close()


class TestFileStoreOnPyfakefs(StoreConformance):
    @pytest.fixture
    def store(self, directory: Path) -> Iterator[Store]:
        store = FileStore(directory)
        yield store
        store.close()


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


def quarantine(store: Store, blob: bytes, key: str = "a") -> str:
    with store.writing():
        assert store.commit([Put(key, blob, Current.DAMAGED)]) == {}
    return store.quarantine(key, Reason.CHECKSUM_MISMATCH)


def test_a_file_store_keeps_the_bytes_of_the_newest_four(directory: Path) -> None:
    store = FileStore(directory)
    for number in range(6):
        quarantine(store, b"bad %d" % number)
    kept = [Path(path).read_bytes() for path in store.quarantined()["a"]]
    store.close()
    assert kept == [b"bad 2", b"bad 3", b"bad 4", b"bad 5"]


def test_a_memory_store_keeps_the_bytes_of_the_newest_four() -> None:
    store = MemoryStore()
    for number in range(6):
        quarantine(store, b"bad %d" % number)
    assert list(store.kept["a"].values()) == [b"bad 2", b"bad 3", b"bad 4", b"bad 5"]
    assert list(store.kept["a"]) == store.quarantined()["a"]


def test_what_is_not_ours_in_quarantine_is_not_listed(directory: Path) -> None:
    store = FileStore(directory)
    kept = quarantine(store, b"bad", "a.b")
    (directory / ".quarantine" / "README").write_text("by an admin")
    (directory / ".quarantine" / "..json").write_text("no key")
    found = store.quarantined()
    store.close()
    assert found == {"a.b": [kept]}
