"""The plugin provides the fixtures where the package is installed; in a bare clone they are imported here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointmanager.testing._plugin import checkpoint_chaos, checkpoint_faults
from checkpointmanager.testing._scratch import fast_folder
from tests.checkpointmanager import spares

__all__ = ["checkpoint_chaos", "checkpoint_faults"]


CLASSIC, SPARES = "classic", "spares"


@pytest.fixture(params=[CLASSIC, SPARES])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How an owner updates a key that it has written before."""
    if request.param == SPARES:
        spares.skip_unless_possible_in(Path(fast_folder()))
    with spares.kept_order(request.param == SPARES):
        yield request.param


@pytest.fixture
def over_spares(request: pytest.FixtureRequest) -> None:
    """Only that way."""
    request.getfixturevalue("way")
