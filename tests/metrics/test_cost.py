"""What measuring costs a write, in processor time: the disk, which takes a hundred times that, is left out."""

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest import mock

import pytest
from prometheus_client import CollectorRegistry

from checkpointmanager import CheckpointManager
from checkpointmanager.metrics import CheckpointMetrics

WRITES = 200  # a round
ROUNDS = 15
LIMIT = 30e-6  # seconds; a durable write takes some thousand


def test_measuring_costs_a_few_microseconds_a_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = CheckpointManager(tmp_path / "plain")
    metered = CheckpointManager(tmp_path / "metered", meter=CheckpointMetrics(CollectorRegistry()))
    with plain, metered, mock.patch.object(os, "fsync", int):
        took = {manager: min(seconds_of(manager, number) for number in range(ROUNDS)) for manager in (plain, metered)}
    cost = took[metered] - took[plain]
    with capsys.disabled():
        print(f"\n  a write without the disk: {took[plain] * 1e6:.1f} µs, measured {cost * 1e6:+.1f} µs")
    assert cost < LIMIT


def seconds_of(manager: CheckpointManager[object], number: int) -> float:
    started = time.process_time()
    for write in range(WRITES):
        manager.create_checkpoint("a", {"number": number, "write": write})
    return (time.process_time() - started) / WRITES
