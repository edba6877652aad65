"""Loading from a cold disk announces to the store what will be read; loading from the page cache does not."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, FileStore, MemoryStore

from ..processes import open_descriptors

PROBED = 32  # files, before anything is announced
AHEAD = 512  # files


class Announced(MemoryStore):
    """Notes the announced keys, the keys that were read without an announcement, and how far ahead they were."""

    def __init__(self, count: int) -> None:
        filled = MemoryStore()
        with CheckpointManager(filled) as manager, manager.batch() as batch:
            for number in range(count):
                batch.create_checkpoint(f"key-{number:04}", number)
        super().__init__()
        self.current = filled.current
        self.announced: list[str] = []
        self.surprises: list[str] = []
        self.reads = self.most_ahead = 0

    def prefetch(self, keys: Sequence[str]) -> None:
        self.announced += keys
        self.most_ahead = max(self.most_ahead, len(self.announced) - self.reads)

    def read(self, key: str, *, previous: bool = False) -> bytes:
        self.reads += 1
        if key not in self.announced:
            self.surprises.append(key)
        return super().read(key, previous=previous)


@pytest.fixture
def slow_disk() -> Any:
    """Every look at the clock finds it one second later."""
    with mock.patch.object(time, "perf_counter", side_effect=itertools.count(0.0, 1.0)):
        yield


WAYS: dict[str, Callable[[CheckpointManager[Any]], int]] = {
    "load": lambda manager: len(manager.load().checkpoints),
    "verify": lambda manager: manager.verify().intact,
}


@pytest.mark.usefixtures("slow_disk")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [PROBED - 1, PROBED, PROBED + 1, PROBED + AHEAD, PROBED + 3 * AHEAD + 1])
def test_when_the_first_files_are_slow_all_others_are_announced_at_most_two_windows_ahead(count: int, way: str) -> None:
    store = Announced(count)

    assert WAYS[way](CheckpointManager(store)) == count

    keys = sorted(store.keys())
    assert store.surprises == keys[1:PROBED]
    assert store.announced == keys[:1] + keys[PROBED:]
    assert store.most_ahead <= 1 + 2 * AHEAD


def test_from_the_page_cache_only_the_first_file_is_announced() -> None:
    store = Announced(100)
    with mock.patch.object(time, "perf_counter", return_value=0.0):
        assert len(CheckpointManager(store).load().checkpoints) == 100
    assert store.announced == ["key-0000"]


def test_the_kernel_gets_a_hint_for_the_file_and_for_nothing_else(
    real_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hints: list[tuple[str, int, int]] = []

    def fadvise(descriptor: int, _start: int, _size: int, advice: int) -> None:
        hints.append((os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")), os.lseek(descriptor, 0, 1), advice))

    monkeypatch.setattr(os, "posix_fadvise", fadvise)
    with closing(FileStore(real_directory)) as store:
        for key in "ab":
            (real_directory / f"{key}.json").write_bytes(b"1")
        (real_directory / "folder.json").mkdir()
        (real_directory / "link.json").symlink_to("elsewhere")
        before = open_descriptors()
        store.prefetch(["gone", "folder", "link", *["a"] * 50])
        assert open_descriptors() == before
    assert set(hints) - {("folder.json", 0, os.POSIX_FADV_WILLNEED)} == {("a.json", 0, os.POSIX_FADV_WILLNEED)}
