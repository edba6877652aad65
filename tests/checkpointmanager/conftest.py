"""Few fixtures, named after things. `directory` is on pyfakefs, `real_directory` on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import CheckpointManager, Event, _locks

from .leases import BOOT, LEASES, LeaseManager
from .signals import untraced


@pytest.fixture
def directory(fs: FakeFilesystem) -> Path:
    fs.create_dir("/var/lib/agent")
    return Path("/var/lib/agent/leases")


@pytest.fixture
def real_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On the disk of the tests, which may well be a tmpfs or an overlay: no event reports that here."""
    monkeypatch.setattr("checkpointmanager._filestore.directory.file_system_of", lambda _: "ext4")
    return tmp_path / "leases"


@pytest.fixture
def no_waiting_for_the_disk() -> Iterator[None]:
    """For tests that only check that thousands of syncs are made: none of them has to reach a disk."""
    with mock.patch.object(os, "fsync", os.fstat), mock.patch.object(os, "fdatasync", os.fstat):
        yield


@pytest.fixture
def uncounted() -> Iterator[None]:
    """Without coverage, for tests that run the same lines thousands of times."""
    with untraced():
        yield


@pytest.fixture
def few_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that open thousands of managers: a thousand locks take longer than the rest of an open."""
    monkeypatch.setattr(_locks, "STRIPES", 16)


@pytest.fixture
def events() -> list[Event]:
    """The events of `manager`."""
    return []


@pytest.fixture
def manager(directory: Path, events: list[Event]) -> Iterator[LeaseManager]:
    with CheckpointManager(directory, LEASES, boot_id=BOOT, on_event=events.append) as manager:
        yield manager
