"""What a dead owner left in its spares is named, and so is what is newer there; not what a living owner has."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager._format.envelope import Header, seal

from .command import checkpoint_verify


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "claims"
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("a", "old")
    leave(directory, ".spare-dead-1", "a", 7)
    leave(directory, ".spare-dead-2", "a", 1)
    (directory / ".spare-dead-3").write_bytes(b"torn")
    return directory


def leave(directory: Path, name: str, key: str, generation: int) -> None:
    header = Header("JSON", 1, 1, key, generation, "", datetime(2026, 11, 16, tzinfo=UTC))
    (directory / name).write_bytes(seal(header, b'"newest"'))


def test_a_newer_generation_that_is_waiting_is_named(directory: Path) -> None:
    ended = checkpoint_verify(directory)
    assert ended.code == 0
    assert "a newer generation is waiting, 7 in .spare-dead-1" in ended.out
    assert "3 spares" in ended.out


def test_where_the_file_is_damaged_it_is_said_what_becomes_of_it(directory: Path) -> None:
    (directory / "a.json").write_bytes(b"rot")
    ended = checkpoint_verify(directory)
    assert ended.code != 0
    assert "it will become the previous generation" in ended.out


def test_a_living_owners_spares_are_not_mentioned(directory: Path) -> None:
    with CheckpointManager(directory):
        leave(directory, ".spare-alive-1", "a", 9)
        assert ".spare-" not in checkpoint_verify(directory).out


def test_after_the_next_owner_there_is_nothing_to_say(directory: Path) -> None:
    CheckpointManager(directory).close()
    ended = checkpoint_verify(directory)
    assert ended.code == 0
    assert ".spare-" not in ended.out
