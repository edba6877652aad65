"""A slow sync is reported, whichever of the two syncs of a write it was."""

from __future__ import annotations

import os
import stat
import time
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, Event, EventKind
from checkpointmanager._filestore import FileStore
from checkpointmanager._store import Put, Replaces

SECONDS = 5.0


@pytest.mark.parametrize("slow", ["file", "directory"])
def test_the_syncs_of_the_data_and_of_the_names_are_both_timed(real_directory: Path, slow: str) -> None:
    """Only the slow sync advances the clock."""
    events: list[Event] = []
    now = [0.0]
    sync = os.fsync

    def take_time(descriptor: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        now[0] += SECONDS * (is_directory == (slow == "directory"))
        sync(descriptor)

    with CheckpointManager(real_directory, on_event=events.append) as manager:
        manager.create_checkpoint("a", 1)
        events.clear()
        clock = mock.patch.object(time, "perf_counter", side_effect=lambda: now[0])
        with clock, mock.patch.object(os, "fsync", take_time):
            manager.create_checkpoint("a", 2)

    assert [(event.kind, event.seconds) for event in events] == [(EventKind.SLOW_SYNC, SECONDS)]


@pytest.mark.parametrize("took", [(0.25, 0.5), (0.5, 0.25)])
def test_on_sync_gets_the_time_of_the_slower_one(real_directory: Path, took: tuple[float, float]) -> None:
    reported: list[float] = []
    now = [0.0]
    times = iter(took)

    def take_time(_: int) -> None:
        now[0] += next(times)

    store = FileStore(real_directory, on_sync=lambda _, seconds: reported.append(seconds))
    clock = mock.patch.object(time, "perf_counter", side_effect=lambda: now[0])
    with clock, mock.patch.object(os, "fsync", take_time):
        store.commit([Put("a", b"{}", 1, Replaces.ABSENT)])
    store.close()

    assert reported == [0.5]


def test_only_a_commit_that_synced_is_reported_as_a_sync(real_directory: Path) -> None:
    synced: list[str] = []
    with closing(FileStore(real_directory, on_sync=lambda path, _: synced.append(path))) as store, store.writing():
        store.commit([])
        assert synced == []
        store.commit([Put("a", b"1", 1, Replaces.ABSENT)])
        assert synced == [str(real_directory)]
