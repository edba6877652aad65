"""One checkpoint `a` with two generations and one `b`, on the disk, on pyfakefs and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, MemoryStore, Store
from checkpointmanager.testing._plugin import checkpoint_chaos, checkpoint_faults

__all__ = ["checkpoint_chaos", "checkpoint_faults"]


@pytest.fixture(params=["disk", "pyfakefs", "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Store:
    if request.param == "pyfakefs":
        request.getfixturevalue("fs")
    return MemoryStore() if request.param == "memory" else tmp_path / "claims"


@pytest.fixture
def manager(target: Path | Store) -> Iterator[CheckpointManager[Any]]:
    with CheckpointManager(target) as manager:
        manager.create_checkpoint("a", "first")
        manager.create_checkpoint("a", {"second": [1, 2, 3], "padding": "x" * 100})
        manager.create_checkpoint("b", "other")
        yield manager
