"""Few fixtures, named after things. `directory` is on pyfakefs, `real_directory` on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import CheckpointManager, Event
from checkpointmanager.testing._oscalls import standing_by

from . import spares
from .leases import BOOT, LEASES, LeaseManager


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _is_shared_with_spares(item)]


def _is_shared_with_spares(item: pytest.Item) -> bool:
    """A combination of parameters that cannot be: a shared directory has no spares."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return params.get("way") == "spares" and bool(params.get("sharing"))


@pytest.fixture
def directory(fs: FakeFilesystem) -> Path:
    fs.create_dir("/var/lib/agent")
    return Path("/var/lib/agent/leases")


@pytest.fixture
def real_directory(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On the disk of the tests, which may well be a tmpfs or an overlay: no event reports that here.

    Treated as a file system without a journal, so all writes go the classic way wherever the tests run, unless a test
    takes both ways.
    """
    monkeypatch.setattr("checkpointmanager._filestore.directory.file_system_of", lambda _: "ext4")
    if "way" not in request.fixturenames:
        monkeypatch.setattr("checkpointmanager._filestore.directory.keeps_order", lambda *_: False)
    return tmp_path / "leases"


@pytest.fixture
def spare_directory(real_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, but updates go over spares."""
    spares.skip_unless_possible_in(tmp_path)
    monkeypatch.setattr("checkpointmanager._filestore.directory.keeps_order", lambda *_: True)
    return real_directory


@pytest.fixture(params=["classic", "spares"])
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """How an owner updates a key that it has written before."""
    if request.param == "spares":
        spares.skip_unless_possible_in(tmp_path)
    with spares.kept_order(request.param == "spares"):
        yield request.param


@pytest.fixture
def no_waiting_for_the_disk() -> Iterator[None]:
    """For tests that only check that thousands of syncs are made: none of them has to reach a disk."""
    with mock.patch.object(os, "fsync", os.fstat), mock.patch.object(os, "fdatasync", os.fstat):
        yield


@pytest.fixture
def kit_standing_by() -> Iterator[None]:
    """The kit searches once for objects that hold a function of `os`, not at each of a thousand failures."""
    with standing_by():
        yield


@pytest.fixture
def events() -> list[Event]:
    """The events of `manager`."""
    return []


@pytest.fixture
def manager(directory: Path, events: list[Event]) -> Iterator[LeaseManager]:
    with CheckpointManager(directory, LEASES, boot_id=BOOT, on_event=events.append) as manager:
        yield manager
