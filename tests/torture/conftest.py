"""A kill loses nothing that the kernel has, so where kills come at chosen calls, no sync has to reach a disk."""

from __future__ import annotations

import pytest

from ..checkpointmanager.conftest import no_waiting_for_the_disk

__all__ = ["no_waiting_for_the_disk"]


@pytest.fixture(autouse=True)
def _one_search(kit_standing_by: None) -> None:
    """For all children of a module, not one in each of them."""
