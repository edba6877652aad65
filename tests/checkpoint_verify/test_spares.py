"""The spares that a dead owner left are reported, with each newer generation in them; those of a live owner are not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from checkpoint_verify import lockstate
from checkpointmanager import CheckpointManager
from checkpointmanager._format.envelope import Header, seal

from ..checkpointmanager.spares import kept_order, skip_unless_possible_in
from .command import called, checkpoint_verify


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "claims"
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("a", "old")
    leave(directory, ".spare-dead-1", "a", 7)
    leave(directory, ".spare-dead-2", "a", 1)
    (directory / ".spare-dead-3").write_bytes(b"torn")
    return directory


@pytest.fixture
def seen_from_another_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc/locks lists no lock of the owner, as in a container with a pid namespace of its own."""
    monkeypatch.setattr(lockstate, "_pids_with_lock_on", lambda status, owner: ())
    monkeypatch.setattr(lockstate, "_sees_all", lambda: False)


def leave(directory: Path, name: str, key: str, generation: int) -> None:
    header = Header("JSON", 1, 1, key, generation, "", datetime(2026, 11, 16, tzinfo=UTC))
    (directory / name).write_bytes(seal(header, b'"newest"'))


def test_a_newer_generation_that_is_waiting_is_named(directory: Path) -> None:
    ended = checkpoint_verify(directory)
    assert ended.code == 0
    assert "a newer generation is waiting, 7 in .spare-dead-1" in ended.out
    assert "3 spares" in ended.out


def test_beside_a_damaged_file_it_says_what_becomes_of_the_spare(directory: Path) -> None:
    (directory / "a.json").write_bytes(b"rot")
    ended = checkpoint_verify(directory)
    assert ended.code != 0
    assert "it will become the previous generation" in ended.out


def test_the_spares_of_a_live_owner_are_not_reported(directory: Path) -> None:
    with CheckpointManager(directory):
        leave(directory, ".spare-alive-1", "a", 9)
        assert ".spare-" not in checkpoint_verify(directory).out


@pytest.mark.parametrize("text", [b"", b"{"], ids=["empty", "unreadable"])
def test_the_spares_of_a_live_owner_in_another_container_are_not_reported(
    directory: Path, text: bytes, seen_from_another_container: None
) -> None:
    skip_unless_possible_in(directory)
    with kept_order(True), CheckpointManager(directory) as manager:
        for number in range(3):
            manager.create_checkpoint("a", number)
        assert list(directory.glob(".spare-*"))
        (directory / ".lock").write_bytes(text)

        ended = called("--json", directory)
        again = called("--json", directory)  # the first look left no lock behind
        manager.create_checkpoint("a", "still the owner")

    for looked in (ended, again):
        assert looked.document["paths"][0]["lock"]["state"] == "unknown"
        assert looked.document["problems"] == []


def test_the_spares_of_a_dead_owner_are_reported_where_locks_are_not_visible(
    directory: Path, seen_from_another_container: None
) -> None:
    (directory / ".spares").write_text("a boot\n")
    assert "3 spares left by an owner that did not close" in called(directory).out


def test_after_the_next_owner_there_is_nothing_to_report(directory: Path) -> None:
    CheckpointManager(directory).close()
    ended = checkpoint_verify(directory)
    assert ended.code == 0
    assert ".spare-" not in ended.out
