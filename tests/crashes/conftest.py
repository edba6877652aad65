"""Both models of a power loss, and the kit's fixtures: the plugin provides them only where the package is installed."""

from __future__ import annotations

from typing import Any

import pytest

from checkpointmanager.testing._plugin import checkpoint_chaos, checkpoint_faults

from .scenarios import MATTERS_NOT

__all__ = ["checkpoint_chaos", "checkpoint_faults"]


@pytest.fixture(params=[False, True], ids=["any names", "names in order"])
def disk(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How names become durable, as options of every_crash."""
    return {"in_order": request.param, "ignore": MATTERS_NOT}
