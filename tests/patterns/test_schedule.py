"""When each periodic task last ran and how often, as celery beat remembers it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from checkpointmanager import CheckpointCache, CorruptCheckpoint, Schema
from checkpointmanager.testing import damage

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Entry:
    every: timedelta
    last_run: datetime | None = None
    runs: int = 0


class Schedule:
    """The tasks that the configuration names, with their history. Each run is durable before its task starts."""

    def __init__(self, directory: Path, tasks: dict[str, timedelta]) -> None:
        self.entries = CheckpointCache(directory, Schema("Entry", version=1, type=Entry))
        for name in set(self.entries) - set(tasks):
            self.entries.delete(name)
        for name in set(tasks) - set(self.entries):
            self.entries.put(name, Entry(tasks[name]))
        for name, entry in self.entries.good().items():
            self.entries.put(name, replace(entry, every=tasks[name]))  # writes nothing if it is the same

    def due(self, now: datetime) -> list[str]:
        """The tasks to run. One whose history cannot be read is not run: it may have run a second ago."""
        good = self.entries.good().items()
        return sorted(name for name, entry in good if not entry.last_run or entry.last_run + entry.every <= now)

    def started(self, names: Iterable[str], now: datetime) -> None:
        for name in names:
            entry = self.entries[name]
            self.entries.put(name, replace(entry, last_run=now, runs=entry.runs + 1))


TASKS = {"backup": timedelta(hours=24), "poll": timedelta(minutes=1)}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The schedule of a beat that has run for two minutes."""
    schedule = Schedule(tmp_path, TASKS)
    for minute in range(2):
        now = NOON + timedelta(minutes=minute)
        schedule.started(schedule.due(now), now)
    schedule.entries.close()
    return tmp_path


def test_a_restart_runs_nothing_twice(directory: Path) -> None:
    schedule = Schedule(directory, TASKS)
    assert {name: entry.runs for name, entry in schedule.entries.items()} == {"backup": 1, "poll": 2}
    assert schedule.due(NOON + timedelta(minutes=1)) == []
    assert schedule.due(NOON + timedelta(minutes=2)) == ["poll"]


def test_the_configuration_decides_which_tasks_there_are_and_how_often_they_run(directory: Path) -> None:
    schedule = Schedule(directory, {"poll": timedelta(hours=1), "report": timedelta(hours=1)})
    assert {name: entry.runs for name, entry in schedule.entries.items()} == {"poll": 2, "report": 0}
    assert schedule.due(NOON + timedelta(minutes=2)) == ["report"]


def test_damage_costs_one_history_and_resets_no_count(directory: Path) -> None:
    damage.fill_with_nuls(directory, "backup")
    schedule = Schedule(directory, TASKS)
    assert schedule.entries["poll"].runs == 2
    assert schedule.due(NOON + timedelta(days=2)) == ["poll"]
    with pytest.raises(CorruptCheckpoint):
        schedule.entries["backup"]
