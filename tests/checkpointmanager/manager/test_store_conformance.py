"""Our stores pass the suite that the kit offers for any store, and keep the promises that only they make."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from checkpointmanager import FileStore, MemoryStore, Reason, Store
from checkpointmanager.testing import StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


def test_a_memory_store_keeps_the_bytes_of_the_newest_four() -> None:
    store = MemoryStore()
    for number in range(6):
        store.current["a"] = b"bad %d" % number
        store.quarantine("a", Reason.CHECKSUM_MISMATCH)
    assert list(store.kept["a"].values()) == [b"bad 2", b"bad 3", b"bad 4", b"bad 5"]
    assert list(store.kept["a"]) == store.quarantined()["a"]


def test_what_is_not_ours_in_quarantine_is_not_listed(directory: Path) -> None:
    with closing(FileStore(directory)) as store:
        (directory / "a.b.json").write_bytes(b"bad")
        kept = store.quarantine("a.b", Reason.CHECKSUM_MISMATCH)
        (directory / ".quarantine" / "README").write_text("by an admin")
        (directory / ".quarantine" / "..json").write_text("no key")
        found = store.quarantined()
    assert found == {"a.b": [kept]}
