"""What a scrape shows after each kind of change."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from unittest import mock

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from checkpoint_verify.screens import prometheus
from checkpointmanager import CheckpointManager, CheckpointWriteFailed, Event, MemoryStore, Reason, Schema
from checkpointmanager.metrics import CheckpointMetrics
from checkpointmanager.testing import watching

from ..checkpointmanager.leases import LEASES, Lease


class Figures:
    """The metrics of one directory, read back as Prometheus would."""

    def __init__(self, directory: str) -> None:
        self.registry = CollectorRegistry()
        self.metrics = CheckpointMetrics(self.registry)
        self.directory = directory

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"checkpointmanager_{name}", {"directory": self.directory, **labels})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "leases"


@pytest.fixture
def figures(directory: Path) -> Figures:
    return Figures(str(directory))


def test_one_line_registers_it(directory: Path) -> None:
    registry = CollectorRegistry()
    with CheckpointManager(directory, LEASES, metrics=CheckpointMetrics(registry)) as manager:
        manager.create_checkpoint("a", Lease("x"))
    assert b"checkpointmanager_writes_total" in generate_latest(registry)


def test_what_does_not_fit_the_program_is_counted_and_is_no_damage(figures: Figures) -> None:
    store = MemoryStore()
    CheckpointManager(store, Schema("Lease")).create_checkpoint("a", {"holder": 7})
    figures.directory = store.path
    manager = CheckpointManager(store, LEASES, metrics=figures.metrics)
    for _ in range(2):
        assert manager.load().problems
    assert figures("schema_mismatches_total") == 2
    assert [figures("damage_total", reason=reason.value) for reason in Reason] == [0] * len(Reason)


def test_writes_bytes_and_skipped_writes_are_counted(directory: Path, figures: Figures) -> None:
    with CheckpointManager(directory, LEASES, metrics=figures.metrics) as manager:
        for holder in ("x", "x", "y"):
            manager.create_checkpoint("a", Lease(holder))
        manager.create_checkpoint("b", Lease("z"))
        manager.remove_checkpoint("b")
        assert figures("writes_total") == 3
        assert figures("unchanged_writes_total") == 1
        assert figures("removals_total") == 1
        assert figures("checkpoints") == 1
        with manager.batch() as batch:
            batch.create_checkpoint("a", Lease("y"))
            batch.create_checkpoint("c", Lease("c"))
        assert figures("writes_total") == 4
        assert figures("unchanged_writes_total") == 2
        assert figures("checkpoints") == 2
    written = sum(
        path.stat().st_size for path in [directory / "a.json", directory / ".previous-a", directory / "c.json"]
    )
    assert (figures("written_bytes_total") or 0) > written


def test_the_histograms_count_each_commit_once(directory: Path, figures: Figures) -> None:
    with CheckpointManager(directory, LEASES, metrics=figures.metrics) as manager:
        for n in range(10):
            manager.create_checkpoint("a", Lease(f"{n}"))
    assert figures("write_seconds_count") == figures("sync_seconds_count") == figures("lock_wait_seconds_count") == 10
    assert figures("write_seconds_bucket", le="+Inf") == 10
    write, sync = figures("write_seconds_sum") or 0, figures("sync_seconds_sum") or 0
    assert write > sync > 0


def test_a_write_that_waits_for_another_thread_is_seen_in_the_lock_waits(directory: Path, figures: Figures) -> None:
    with CheckpointManager(directory, LEASES, metrics=figures.metrics) as manager:
        manager.create_checkpoint("a", Lease("x"))
        other = threading.Thread(target=manager.create_checkpoint, args=("a", Lease("z")))

        def change(lease: Lease) -> Lease:
            other.start()
            other.join(0.05)
            return Lease("y")

        manager.update_checkpoint("a", change)
        other.join()
    assert (figures("lock_wait_seconds_sum") or 0) > 0.04
    assert figures("lock_wait_seconds_count") == 3


def test_failed_writes_are_counted_apart_from_those_in_doubt(directory: Path, figures: Figures) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with CheckpointManager(directory, LEASES, metrics=figures.metrics) as manager:
        with mock.patch.object(os, "write", full), pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", Lease("x"))
        manager.create_checkpoint("a", Lease("x"))
        with mock.patch.object(os, "fdatasync", side_effect=OSError(errno.EIO, "")), pytest.raises(OSError):
            manager.create_checkpoint("a", Lease("y"))
    assert figures("write_failures_total") == 1
    assert figures("writes_in_doubt_total") == 1
    assert figures("writes_total") == 1


def test_the_time_that_a_settle_took_is_counted(directory: Path, figures: Figures) -> None:
    with CheckpointManager(directory, LEASES, metrics=figures.metrics) as manager:
        manager.create_checkpoint("a", Lease("x"))
        before = figures("settle_seconds_count")
    assert figures("settle_seconds_count") == (before or 0) + 1


def test_measuring_adds_no_system_call(directory: Path, figures: Figures) -> None:
    calls: list[list[str]] = []
    for number, metrics in enumerate([None, figures.metrics]):
        with CheckpointManager(directory / str(number), LEASES, metrics=metrics) as manager:
            manager.create_checkpoint("a", Lease("x"))
            with watching(directory / str(number)) as made:
                manager.create_checkpoint("a", Lease("y"))
            calls.append([call.name for call in made])
    assert calls[0] == calls[1] != []


def test_damage_is_shown_by_reason_until_it_is_gone(directory: Path, figures: Figures) -> None:
    with CheckpointManager(directory, LEASES, metrics=figures.metrics) as manager:
        for key in "abcd":
            manager.create_checkpoint(key, Lease("x"))
            manager.create_checkpoint(key, Lease("y"))
    for key in "abc":
        (directory / f"{key}.json").write_bytes(b"")
    (directory / "d.json").write_bytes((directory / "d.json").read_bytes().replace(b"y", b"q"))

    with CheckpointManager(directory, LEASES, metrics=figures.metrics) as manager:
        manager.load()
        assert figures("damaged", reason=Reason.EMPTY) == 3
        assert figures("damaged", reason=Reason.CHECKSUM_MISMATCH) == 1
        manager.recover_checkpoint("a", rollback=True)
        manager.create_checkpoint("b", Lease("new"))
        manager.remove_checkpoint("c")
        assert figures("damaged", reason=Reason.EMPTY) == 0
        assert figures("damaged", reason=Reason.CHECKSUM_MISMATCH) == 1
        assert (figures("damage_total", reason=Reason.EMPTY) or 0) >= 3
        assert figures("recoveries_total") == 1
        assert figures("quarantines_total") == figures("quarantined") == 3
        assert figures("checkpoints") == 3


def test_one_meter_serves_many_directories_and_a_closed_one_keeps_its_counts(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    metrics = CheckpointMetrics(registry)
    for name in ("one", "two"):
        with CheckpointManager(tmp_path / name, LEASES, metrics=metrics) as manager:
            manager.create_checkpoint("a", Lease("x"))
    text = generate_latest(registry).decode()
    for name in ("one", "two"):
        assert f'checkpointmanager_writes_total{{directory="{tmp_path / name}"}} 1.0' in text
        assert f'checkpointmanager_checkpoints{{directory="{tmp_path / name}"}}' not in text, "closed"
    assert text.count("# TYPE checkpointmanager_writes_total counter") == 1


def test_a_store_without_files_has_no_syncs() -> None:
    figures = Figures("memory:")
    with CheckpointManager(MemoryStore(), LEASES, metrics=figures.metrics) as manager:
        manager.create_checkpoint("a", Lease("x"))
        assert figures("checkpoints") == 1
    assert figures("writes_total") == 1
    assert figures("sync_seconds_count") == 0


def test_the_agent_s_own_callback_gets_the_events_as_well(directory: Path, figures: Figures) -> None:
    heard: list[Event] = []
    with CheckpointManager(directory, LEASES, metrics=figures.metrics, on_event=heard.append) as manager:
        (directory / "a.json").write_bytes(b"")
        manager.load()
    assert [event.reason for event in heard if event.key] == [Reason.EMPTY]
    assert figures("damaged", reason=Reason.EMPTY) == 1


def test_names_and_texts_are_those_of_the_command_where_the_meaning_is_the_same(
    directory: Path, figures: Figures
) -> None:
    with CheckpointManager(directory, LEASES, metrics=figures.metrics):
        text = generate_latest(figures.registry).decode()
    ours = {line.split()[2]: line.split(maxsplit=3)[3] for line in text.splitlines() if line.startswith("# HELP")}
    theirs = {f"checkpointmanager_{name}": text for name, text in prometheus._HELP.items()}
    both = ours.keys() & theirs.keys()
    assert both == {f"checkpointmanager_{name}" for name in ("checkpoints", "damaged", "unreadable", "quarantined")}
    assert {name: ours[name] for name in both} == {name: theirs[name] for name in both}
