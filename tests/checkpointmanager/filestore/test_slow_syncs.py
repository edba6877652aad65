"""A slow sync is reported: the one that commits, as the agent's call waits for it. A settle is measured on its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, Event, EventKind
from checkpointmanager.metrics import CheckpointMetrics
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


def observed(metrics: CheckpointMetrics, what: str) -> float:
    """How often this time was measured."""
    family = next(each for each in metrics.collect() if each.name == f"checkpointmanager_{what}_seconds")
    return next((sample.value for sample in family.samples if sample.name.endswith("_count")), 0)


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
    metrics = CheckpointMetrics(registry=None)
    with (
        mock.patch.object(os, "fsync", os.fstat),
        mock.patch.object(os, "fdatasync", os.fstat),
        CheckpointManager[Any](real_directory, metrics=metrics) as manager,
    ):
        for number in range(300):
            manager.create_checkpoint(f"k{number}", number)
    assert 2 <= observed(metrics, "settle") <= 5, "the first journal, the 256 dirty keys, and the close"


def test_only_a_commit_that_synced_is_reported_as_a_sync(real_directory: Path) -> None:
    metrics = CheckpointMetrics(registry=None)
    with CheckpointManager[Any](real_directory, metrics=metrics) as manager:
        with manager.batch():
            pass
        assert observed(metrics, "sync") == 0
        manager.create_checkpoint("a", 1)
        assert observed(metrics, "sync") == 1
