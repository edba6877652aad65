"""Loading from a cold disk announces to the store what will be read; loading from the page cache does not."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, FileStore, MemoryStore
from checkpointmanager._readahead import AHEAD, PROBED, read_ahead


class WatchedStore(MemoryStore):
    """Notes the announced keys, and the keys that were read without an announcement."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.prefetched: list[str] = []
        self.surprises: list[str] = []
        with CheckpointManager(self) as manager, manager.batch() as batch:
            for number in range(count):
                batch.create_checkpoint(f"key-{number:04}", number)
        self.surprises.clear()

    def prefetch(self, keys: Any) -> None:
        self.prefetched += keys

    def read(self, key: str, *, previous: bool = False) -> bytes:
        if key not in self.prefetched:
            self.surprises.append(key)
        return super().read(key, previous=previous)


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpointmanager._readahead.SLOW_SECONDS", 0.0)


@pytest.mark.usefixtures("slow_disk")
@pytest.mark.parametrize("count", [PROBED - 1, PROBED, PROBED + 1, PROBED + AHEAD, PROBED + 3 * AHEAD + 1])
def test_when_the_first_files_are_slow_the_store_expects_all_others(count: int) -> None:
    store = WatchedStore(count)

    assert len(CheckpointManager(store).load().checkpoints) == count

    keys = sorted(store.keys())
    assert store.surprises == keys[1:PROBED]
    assert store.prefetched == keys[:1] + keys[PROBED:]


@pytest.mark.usefixtures("slow_disk")
def test_verify_reads_ahead_as_well() -> None:
    store = WatchedStore(PROBED + 2)
    assert CheckpointManager(store).verify().intact == PROBED + 2
    assert store.surprises == sorted(store.keys())[1:PROBED]


@pytest.mark.usefixtures("slow_disk")
def test_no_more_is_prefetched_than_two_windows_at_a_time() -> None:
    store = WatchedStore(PROBED + 4 * AHEAD)
    for read, _ in enumerate(read_ahead(store, sorted(store.keys()))):
        assert len(store.prefetched) <= 1 + max(0, read - PROBED) + 2 * AHEAD


def test_from_the_page_cache_only_the_first_file_is_prefetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpointmanager._readahead.SLOW_SECONDS", 3600.0)
    store = WatchedStore(100)

    assert len(CheckpointManager(store).load().checkpoints) == 100
    assert store.prefetched == ["key-0000"]


def test_the_kernel_gets_a_hint_for_the_file_and_for_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hints: list[tuple[str, int, int]] = []

    def fadvise(descriptor: int, _start: int, _size: int, advice: int) -> None:
        hints.append((os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")), os.lseek(descriptor, 0, 1), advice))

    monkeypatch.setattr(os, "posix_fadvise", fadvise)
    with CheckpointManager(tmp_path / "claims") as manager:
        manager.create_checkpoint("a", 1)
        manager.create_checkpoint("b", 1)
    with closing(FileStore(tmp_path / "claims", read_only=True)) as store:
        store.prefetch(["a"])
    assert hints == [("a.json", 0, os.POSIX_FADV_WILLNEED)]


def test_what_is_gone_or_no_file_is_passed_over(directory: Path) -> None:
    with closing(FileStore(directory)) as store:
        (directory / "folder.json").mkdir()
        (directory / "link.json").symlink_to("elsewhere")
        store.prefetch(["gone", "folder", "link"])


def test_expecting_leaves_no_descriptor_open(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path / "claims") as manager:
        manager.create_checkpoint("a", 1)
        store = FileStore(tmp_path / "claims", read_only=True)
        before = os.listdir("/proc/self/fd")
        store.prefetch(["a"] * 50)
        assert os.listdir("/proc/self/fd") == before
        store.close()
