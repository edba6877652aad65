"""The file store is tested on a real file system, in memory if there is one, and with other processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..processes import Agent

IN_MEMORY = Path("/dev/shm")
ROOM = 1 << 30  # bytes; a container may have only 64 MB there


def folder_of_the_tests() -> Path | None:
    """None for the usual one."""
    usable = os.access(IN_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(IN_MEMORY).free >= ROOM
    return IN_MEMORY if usable else None


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: enumerations make and delete thousands of files, which takes most of their time on a busy disk."""
    path = tempfile.mkdtemp(dir=folder_of_the_tests())
    yield Path(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def directory(real_directory: Path, no_waiting_for_the_disk: None) -> Path:
    """On the disk, but nothing waits for it."""
    return real_directory


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent
