"""The fixtures come with the plugin where the package is installed; in a bare clone they are taken from here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from checkpointmanager.testing._plugin import checkpoint_chaos, checkpoint_faults
from checkpointmanager.testing._scratch import fast_folder
from tests.checkpointmanager import recycling

__all__ = ["checkpoint_chaos", "checkpoint_faults"]


@pytest.fixture
def recyclable() -> None:
    if not recycling.is_possible_in(Path(fast_folder())):
        pytest.skip("this file system has no leases, or cannot exchange names")


@pytest.fixture(params=["classic", "recycled"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How a key is written that its owner has written before."""
    if request.param == "recycled":
        request.getfixturevalue("recyclable")
    with recycling.never() if request.param == "classic" else nullcontext():
        yield request.param
