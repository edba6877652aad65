"""Journals as a dead owner leaves them, made by hand, and what a manager sees of a key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointManager, CheckpointNotFound
from checkpointmanager.format import Change, Header, padded, seal, seal_journal, seal_record

Manager = CheckpointManager[Any]
WHEN = datetime(2026, 11, 16, tzinfo=UTC)


def put(key: str, generation: int, value: object = None) -> Change:
    data = f'"{value or generation}"'.encode()
    return Change(key, generation, seal(Header("JSON", 1, 1, key, generation, "", WHEN), data))


def gone(key: str, generation: int) -> Change:
    return Change(key, generation, None)


def blob(change: Change) -> bytes:
    assert change.blob is not None
    return change.blob


def journal_of(*records: Sequence[Change], blanks: int = 4096) -> bytes:
    lines = [padded(seal_record(changes, number)) for number, changes in enumerate(records, 1)]
    return padded(seal_journal(WHEN)) + b"".join(lines) + b"\n" * blanks


def left(directory: Path, name: str, content: bytes) -> None:
    (directory / name).write_bytes(content)
    (directory / name).chmod(0o600)


def opened(directory: Path, **options: Any) -> Manager:
    return CheckpointManager(directory, **options)


def reader_of(directory: Path, **options: Any) -> Manager:
    return opened(directory, read_only=True, **options)


def seen(manager: Manager, key: str = "a") -> tuple[Any, Any]:
    """The current and the previous data."""
    try:
        current = manager.get_checkpoint(key).data
    except CheckpointNotFound:
        current = None
    previous = manager.previous_checkpoint(key)
    return current, previous.data if previous else None
