"""Both models of a power loss, a small journal, and the kit's fixtures, which come only with an installed package."""

from __future__ import annotations

from typing import Any

import pytest

from checkpointmanager._filestore import journal
from checkpointmanager.format import BLOCK_BYTES
from checkpointmanager.testing._plugin import checkpoint_chaos, checkpoint_faults

from ..checkpointmanager.conftest import few_locks
from .scenarios import MATTERS_NOT

__all__ = ["checkpoint_chaos", "checkpoint_faults", "few_locks"]

BLOCKS = 3  # of a journal: its first line and two groups
DIRTY_KEYS = 3


@pytest.fixture(autouse=True)
def _one_search(kit_standing_by: None) -> None:
    """For all crashes of a module."""


@pytest.fixture(autouse=True)
def small_journal(monkeypatch: pytest.MonkeyPatch, few_locks: None) -> None:
    """So small that short stories fill it, and that thousands of disks are cheap to write."""
    monkeypatch.setattr(journal, "FIRST_BYTES", BLOCKS * BLOCK_BYTES)
    monkeypatch.setattr(journal, "LAST_BYTES", BLOCKS * BLOCK_BYTES)
    monkeypatch.setattr(journal, "DIRTY_KEYS", DIRTY_KEYS)


@pytest.fixture(params=[False, True], ids=["any names", "names in order"])
def disk(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How names become durable, as options of every_crash."""
    return {"in_order": request.param, "ignore": MATTERS_NOT}
