"""The file store is tested on a real file system, and with other processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..processes import Agent


@pytest.fixture
def directory(real_directory: Path, no_waiting_for_the_disk: None) -> Path:
    """On the disk, but nothing waits for it."""
    return real_directory


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent
