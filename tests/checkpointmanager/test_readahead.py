"""Loading from a cold disk asks for several files at once; from a warm one it does not."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from checkpointmanager import CheckpointManager, MemoryStore
from checkpointmanager.readahead import PROBED, THREADS, read_ahead


class WatchedStore(MemoryStore):
    """Notes in which threads it was read; a cold one lets each thread wait for others to come."""

    def __init__(self, count: int, *, cold: bool) -> None:
        super().__init__()
        self.cold = False
        self.threads: set[int] = set()
        self.together = threading.Barrier(THREADS)
        with CheckpointManager(self) as manager, manager.batch() as batch:
            for number in range(count):
                batch.create_checkpoint(f"key-{number:04}", number)
        self.threads.clear()
        self.cold = cold

    def read(self, key: str, *, previous: bool = False) -> bytes:
        self.threads.add(threading.get_ident())
        if self.cold and threading.current_thread() is not threading.main_thread():
            self.together.wait(timeout=20)
        return super().read(key, previous=previous)


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpointmanager.readahead.SLOW_SECONDS", 0.0)


@pytest.mark.usefixtures("slow_disk")
def test_when_the_first_files_are_slow_eight_threads_read_the_others_at_once() -> None:
    store = WatchedStore(PROBED + THREADS, cold=True)

    for key in read_ahead(store, store.keys()):
        store.read(key)

    assert len(store.threads) == 1 + THREADS


def test_from_the_page_cache_everything_is_read_by_the_caller_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpointmanager.readahead.SLOW_SECONDS", 3600.0)
    store = WatchedStore(100, cold=False)

    assert len(CheckpointManager(store).load().checkpoints) == 100
    assert store.threads == {threading.get_ident()}


@pytest.mark.usefixtures("slow_disk")
def test_what_is_damaged_or_gone_is_told_to_the_caller_and_to_nobody_else() -> None:
    store = WatchedStore(40, cold=False)
    store.current["key-0030"] = b""
    del store.current["key-0031"]

    loaded = CheckpointManager(store).load()

    assert (len(loaded.checkpoints), list(loaded.problems)) == (38, ["key-0030"])


@pytest.mark.usefixtures("slow_disk")
def test_a_caller_that_stops_early_leaves_no_thread_behind() -> None:
    store = WatchedStore(400, cold=False)
    before = threading.active_count()
    with closing(read_ahead(store, store.keys())) as keys:
        for _ in range(PROBED + 2):
            next(keys)

    assert threading.active_count() == before
