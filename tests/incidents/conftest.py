"""Few fixtures, named after things. `directory` is on pyfakefs, `real_directory` on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import Event

from .disk import Disk
from .gpus import GpuDriver


@pytest.fixture
def directory(fs: FakeFilesystem) -> Path:
    fs.create_dir("/var/lib/agent")
    return Path("/var/lib/agent/state")


@pytest.fixture
def disk(fs: FakeFilesystem) -> Disk:
    """The disk that `directory` is on, which can be filled."""
    return Disk(fs)


@pytest.fixture
def real_directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def events() -> list[Event]:
    """The events of a manager that was opened with on_event=events.append."""
    return []


@pytest.fixture
def driver() -> GpuDriver:
    return GpuDriver()
