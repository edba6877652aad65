"""The same scenarios where calls fail and processes die, instead of the power: the same promises hold."""

from __future__ import annotations

import errno

import pytest

from checkpointmanager import CheckpointError, Outcome
from checkpointmanager.testing import Fault, acknowledge, damage, every_fault

from .conftest import SPARES
from .ledger import Manager, check
from .scenarios import SCENARIOS, damaged
from .spare_scenarios import SPARED

# A removal proceeds without a copy and reports it, so errors may lose the damaged bytes.
ONLY_DEATHS = {"remove what is damaged"}
# Scenarios where an error ends the thread or the reader only, and scenarios that make faults of their own.
LEFT_OUT = {
    *("two threads", "update under a reader"),
    *("data sync fails, write again", "directory sync fails, write again"),
}


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in LEFT_OUT])
def test_whatever_fails_and_wherever_the_process_dies_all_promises_hold(way: str, name: str) -> None:
    scenario = SCENARIOS[name]
    errors = () if name in ONLY_DEATHS else (errno.EIO, errno.ENOSPC)
    faults = every_fault(scenario.act, setup=scenario.setup, errors=errors).check(check_error_and_directory)
    print(f"{name}, {way}: {faults.runs} faults")
    assert faults.runs >= 12


@pytest.mark.parametrize("way", [SPARES], indirect=True)
@pytest.mark.parametrize("name", ["one update", "batch", "remove, then create again", "close"])
def test_the_same_where_updates_go_over_spares(way: str, name: str) -> None:
    scenario = SPARED[name]
    faults = every_fault(scenario.act, setup=scenario.setup, errors=(errno.EIO, errno.ENOSPC))
    faults.check(check_error_and_directory)
    print(f"{name}, {way}: {faults.runs} faults")
    assert faults.runs >= 30


def check_error_and_directory(fault: Fault) -> None:
    closing = fault.call.name == "close" and fault.call.about.endswith("claims")  # the directory, by manager.close()
    assert fault.error is None or isinstance(fault.error, CheckpointError) or closing
    check(fault)


def test_a_shortage_of_descriptors_is_no_reason_to_roll_back() -> None:
    """One bit has flipped, so the exact repair is possible; a rollback would lose an acknowledged change."""

    def recover(manager: Manager) -> None:
        acknowledge(manager.recover_checkpoint("a", rollback=True).outcome)

    for fault in every_fault(recover, setup=damaged(damage.flip_bit), errors=[errno.EMFILE], deaths=False):
        assert Outcome.ROLLED_BACK not in fault.acknowledged, str(fault)
