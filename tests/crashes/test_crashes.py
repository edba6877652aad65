"""Every power loss in everything a manager does, and a second one while it recovers from the first.

Each test prints how many different disks it checked; pytest -rP shows it.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import Crash, every_crash

from .conftest import SPARES
from .ledger import Began, Manager, check, come_back, folder_of, outlooks, value_of
from .scenarios import (
    SCENARIOS,
    closed,
    create_the_directory,
    killed_and_restarted,
    new,
    remove_and_create_again,
)

TWICE = [name for name, scenario in SCENARIOS.items() if scenario.at_least_twice]


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_a_power_loss_leaves_all_promises_hold(way: str, name: str) -> None:
    crashes = SCENARIOS[name].crashes(way).check(check)
    print(f"{name}, {way}: {crashes.states} states")
    assert way == SPARES or crashes.states >= SCENARIOS[name].at_least
    assert crashes.left_out == 0


@pytest.mark.parametrize("name", TWICE)
def test_a_second_power_loss_during_the_restart_breaks_none_of_them(way: str, name: str) -> None:
    states = 0

    def crash_again(crash: Crash) -> None:
        nonlocal states
        second = crash.again(come_back).check(check)
        assert second.left_out == 0
        states += second.states

    SCENARIOS[name].crashes(way).check(crash_again)
    print(f"{name}, {way}: {states} states after two power losses")
    assert way == SPARES or states >= SCENARIOS[name].at_least_twice


def test_what_was_seen_after_a_kill_survives_the_power_loss_after_it() -> None:
    states = 0
    for nth in itertools.count(1):
        killed: list[bool] = []
        states += every_crash(killed_and_restarted(nth, killed), setup=closed).check(check).states
        if not killed[0]:
            break
    print(f"killed at one of {nth - 1} calls, restarted, power loss: {states} states")
    assert nth >= 40
    assert states >= 1500


def test_whatever_becomes_of_the_text_in_the_lock_file_no_promise_breaks() -> None:
    crashes = every_crash(create_the_directory, ignore=()).check(check)
    print(f"first creation, with the text of the lock file: {crashes.states} states")
    assert crashes.states >= 100


def test_without_directory_syncs_a_checkpoint_is_still_old_or_new() -> None:
    """durability="atomic": what was acknowledged may be lost, but nothing is ever torn."""

    def any_whole_value(crash: Crash) -> None:
        begun = outlooks(event for event in crash.acknowledged if isinstance(event, Began))
        with CheckpointManager(folder_of(crash.directory)) as manager:
            assert value_of(manager, "a") in begun["a"].now

    def setup(directory: Path) -> Manager:
        return new(closed(directory), durability="atomic")

    crashes = every_crash(remove_and_create_again, setup=setup).check(any_whole_value)
    print(f"atomic: {crashes.states} states")
    assert crashes.states >= 300
