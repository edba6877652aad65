"""The same scenarios where calls fail and processes die, instead of the power: the same promises hold."""

from __future__ import annotations

import errno

import pytest

from checkpointmanager import CheckpointError
from checkpointmanager.testing import Fault, every_fault
from tests.long import sample, times

from .oracle import check
from .sampling import sampled
from .scenarios import SCENARIOS

# A removal proceeds without a copy and reports it, so errors may lose the damaged bytes.
ONLY_DEATHS = {"remove what is damaged"}
# Scenarios that make faults of their own.
LEFT_OUT = {"open beside an orphan, after a failed sync", "make the directory, after a failed sync"}


@pytest.mark.parametrize("name", sample([name for name in SCENARIOS if name not in LEFT_OUT], 3))
def test_whatever_fails_and_wherever_the_process_dies_all_promises_hold(name: str) -> None:
    scenario = SCENARIOS[name]
    errors = () if name in ONLY_DEATHS else (errno.EIO, errno.ENOSPC)[: times(1, 2)]
    faults = every_fault(scenario.act, setup=scenario.setup, errors=errors).check(
        sampled(check_error_and_directory, first=0, each=3)
    )
    print(f"{name}: {faults.runs} faults")
    assert faults.runs >= 8


@pytest.mark.parametrize("name", ["two threads", "a transaction, then the opposite"])
def test_wherever_a_signal_handler_raises_all_promises_hold(name: str) -> None:
    scenario = SCENARIOS[name]
    faults = every_fault(scenario.act, setup=scenario.setup, errors=(), deaths=False, interrupts=True).check(
        sampled(check, first=0, each=3)
    )
    print(f"{name}: {faults.runs} interrupts")
    assert faults.runs >= 20


def check_error_and_directory(fault: Fault) -> None:
    closing = fault.call.name == "close" and fault.call.about.endswith("claims")  # the directory, by manager.close()
    assert fault.error is None or isinstance(fault.error, CheckpointError) or closing
    check(fault)
