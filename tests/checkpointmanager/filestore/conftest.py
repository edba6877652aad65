"""The file store is tested on a real file system, in memory if there is one, and with other processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..processes import Agent

IN_MEMORY = "/dev/shm"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: enumerations make and delete thousands of files, which takes most of their time on a busy disk."""
    path = tempfile.mkdtemp(dir=IN_MEMORY if os.access(IN_MEMORY, os.W_OK | os.X_OK) else None)
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
