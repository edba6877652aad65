"""A slow sync is reported: the one that commits, as the agent's call waits for it. A settle is measured on its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, Event, EventKind, FileStore
from checkpointmanager.testing import Call, watching

pytestmark = pytest.mark.usefixtures("kit_standing_by")

SECONDS = 5.0


@contextmanager
def slow(directory: Path, call: str) -> Iterator[None]:
    """Each such call advances the clock, and nothing else does."""
    now = [0.0]

    def take_time(met: Call) -> None:
        now[0] += SECONDS * (met.name == call)

    with mock.patch.object(time, "perf_counter", side_effect=lambda: now[0]), watching(directory, after=take_time):
        yield


@pytest.mark.parametrize(
    ("options", "call"), [({}, "fdatasync"), ({"sharing": True}, "fsync"), ({"durability": "atomic"}, "fsync")]
)
def test_a_sync_that_takes_long_is_an_event(real_directory: Path, options: dict[str, Any], call: str) -> None:
    events: list[Event] = []
    with CheckpointManager[Any](real_directory, on_event=events.append, **options) as manager:
        manager.create_checkpoint("a", 1)
        events.clear()
        with slow(real_directory, call):
            manager.create_checkpoint("a", 2)
    assert [event.kind for event in events] == [EventKind.SLOW_SYNC]
    assert events[0].seconds >= SECONDS


def test_what_waits_for_a_settle_is_reported_as_such(real_directory: Path) -> None:
    settled: list[float] = []
    with closing(FileStore(real_directory, on_settle=lambda _, seconds: settled.append(seconds))) as store:
        manager: CheckpointManager[int] = CheckpointManager(store)
        with mock.patch.object(os, "fsync", os.fstat), mock.patch.object(os, "fdatasync", os.fstat):
            for number in range(300):
                manager.create_checkpoint(f"k{number}", number)
    assert 2 <= len(settled) <= 5, "the first journal, the 256 dirty keys, and the close"


def test_only_a_commit_that_synced_is_reported_as_a_sync(real_directory: Path) -> None:
    synced: list[str] = []
    with closing(FileStore(real_directory, on_sync=lambda path, _: synced.append(path))) as store:
        manager: CheckpointManager[int] = CheckpointManager(store)
        with manager.batch():
            pass
        assert synced == []
        manager.create_checkpoint("a", 1)
        assert synced == [str(real_directory)]
