"""What is pruned from quarantine, whatever the clock says: never the copy that was just made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager._filestore import quarantine

from ..contents import names, quarantined

Manager = CheckpointManager[Any]


@pytest.fixture
def manager(directory: Path) -> Iterator[Manager]:
    with CheckpointManager[Any](directory) as manager:
        yield manager


@contextmanager
def clock(offset: timedelta) -> Iterator[None]:
    class Shifted(datetime):
        @classmethod
        def now(cls, zone: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(zone) + offset

    with mock.patch.object(quarantine, "datetime", Shifted):
        yield


def replaced(manager: Manager, directory: Path, key: str, blob: bytes) -> None:
    """Damage a key and write it anew, so that the damage is in quarantine."""
    (directory / f"{key}.json").write_bytes(blob)
    manager.verify()
    manager.create_checkpoint(key, blob.decode())


@pytest.mark.parametrize("days", [3650, -3650], ids=["ahead", "behind"])
def test_a_clock_that_was_wrong_costs_no_copy_that_has_just_been_made(
    manager: Manager, directory: Path, days: int
) -> None:
    with clock(timedelta(days=days)):
        for turn in range(4):
            replaced(manager, directory, "a", b"wrong clock %d" % turn)
    for turn in range(3):
        replaced(manager, directory, "a", b"right clock %d" % turn)
        assert b"right clock %d" % turn in quarantined(directory)

    right = [b"right clock 0", b"right clock 1", b"right clock 2"]
    assert sorted(quarantined(directory)) == sorted([*right, b"wrong clock 3"])


def test_with_a_stopped_clock_every_copy_still_gets_a_name_of_its_own(manager: Manager, directory: Path) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, zone: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime(2026, 1, 1, tzinfo=zone)

    with mock.patch.object(quarantine, "datetime", Stopped):
        for turn in range(6):
            replaced(manager, directory, "a", b"damaged %d" % turn)

    assert len(quarantined(directory)) == 4
    assert b"damaged 5" in quarantined(directory)


def test_all_keys_together_keep_the_newest(
    manager: Manager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "KEPT", 64)
    for number in range(70):
        replaced(manager, directory, f"key-{number}", b"damaged %d" % number)

    assert sorted(quarantined(directory)) == sorted(b"damaged %d" % number for number in range(6, 70))


def test_all_keys_together_keep_no_more_bytes_than_the_limit(
    manager: Manager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "KEPT_BYTES", 1000)
    for number in range(5):
        replaced(manager, directory, f"key-{number}", b"%d" % number * 400)
    assert quarantined(directory) == [b"3" * 400, b"4" * 400]

    replaced(manager, directory, "large", b"5" * 4000)
    assert quarantined(directory) == [b"5" * 4000], "the newest copy stays, whatever its size"


def test_the_last_copy_of_what_is_still_damaged_is_not_pruned(
    manager: Manager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch keeps all its damaged checkpoints before it replaces the first."""
    monkeypatch.setattr(quarantine, "KEPT", 4)
    blobs = [b"damaged %d" % number for number in range(10)]
    for number, blob in enumerate(blobs):
        (directory / f"key-{number}.json").write_bytes(blob)

    with manager.batch() as batch:
        for number in range(10):
            batch.create_checkpoint(f"key-{number}", number)
    assert sorted(quarantined(directory)) == sorted(blobs)

    replaced(manager, directory, "another", b"damaged again")
    assert len(quarantined(directory)) == 4
    assert b"damaged again" in quarantined(directory)


def test_the_only_copy_of_what_is_gone_is_not_pruned(
    manager: Manager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "KEPT", 4)
    for number in range(10):
        (directory / f"key-{number}.json").write_bytes(b"damaged %d" % number)
        manager.plan_recovery(f"key-{number}").apply(discard=True)

    assert sorted(quarantined(directory)) == sorted(b"damaged %d" % number for number in range(10))


def test_what_is_no_copy_of_ours_is_left_alone(manager: Manager, directory: Path) -> None:
    (directory / ".quarantine").mkdir(mode=0o700)
    (directory / ".quarantine" / "a.by.hand.json").write_bytes(b"an operator's")
    for turn in range(6):
        replaced(manager, directory, "a", b"damaged %d" % turn)

    assert "a.by.hand.json" in names(directory / ".quarantine")
    assert len(quarantined(directory)) == 5


def test_of_folders_only_empty_ones_are_pruned(real_directory: Path) -> None:
    with CheckpointManager[Any](real_directory) as manager:
        for turn in range(6):
            (real_directory / "a.json").mkdir()
            if turn == 0:
                (real_directory / "a.json" / "inside").mkdir()
            manager.remove_checkpoint("a")
        kept = names(real_directory / ".quarantine")
    assert len(kept) == 5
    assert [name for name in kept if os.listdir(real_directory / ".quarantine" / name)] == kept[:1]
