"""No later sync makes good a failed one. So a repeated change is made anew, and survives in every disk state."""

from __future__ import annotations

import pytest

from checkpointmanager.testing import every_crash

from .ledger import check
from .scenarios import FAILED_SYNCS


@pytest.mark.parametrize("name", FAILED_SYNCS)
def test_what_is_repeated_after_a_failed_sync_survives_every_power_loss(name: str) -> None:
    scenario = FAILED_SYNCS[name]
    crashes = every_crash(scenario.act, setup=scenario.setup).check(check)
    print(f"{name}: {crashes.states} states")
    assert crashes.states >= scenario.at_least
    assert crashes.left_out == 0
