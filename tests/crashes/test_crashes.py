"""Every power loss in everything that a manager does, and a second one while it recovers from the first.

Each test prints how many different disks it looked at; pytest -rP shows it.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import Crash, every_crash

from .ledger import Began, Manager, check, come_back, folder_of, outlooks, put, value_of
from .scenarios import (
    SCENARIOS,
    closed,
    create_the_directory,
    killed_and_restarted,
    new,
    remove_and_create_again,
)

TWICE = [("classic", name) for name, scenario in SCENARIOS.items() if scenario.at_least_twice]
TWICE += [("recycled", name) for name, scenario in SCENARIOS.items() if scenario.recycled and scenario.recycled[1]]


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_a_power_loss_leaves_all_promises_hold(way: str, name: str) -> None:
    scenario = SCENARIOS[name]
    crashes = every_crash(scenario.act, setup=scenario.setup).check(check)
    print(f"{name}, {way}: {crashes.states} states")
    assert crashes.states >= scenario.bounds(way)[0]
    assert crashes.left_out == 0


@pytest.mark.parametrize(("way", "name"), TWICE, indirect=["way"])
def test_a_second_power_loss_during_the_restart_breaks_none_of_them(way: str, name: str) -> None:
    scenario = SCENARIOS[name]
    states = 0

    def crash_again(crash: Crash) -> None:
        nonlocal states
        second = crash.again(come_back).check(check)
        assert second.left_out == 0
        states += second.states

    every_crash(scenario.act, setup=scenario.setup).check(crash_again)
    print(f"{name}, {way}: {states} states after two power losses")
    assert states >= scenario.bounds(way)[1]


@pytest.mark.usefixtures("recyclable")
@pytest.mark.parametrize("name", ["update with a previous generation", "directory sync fails, write again"])
def test_after_a_power_loss_recycling_is_as_safe_as_before(name: str) -> None:
    """A second one, while the restarted process overwrites what the first one left for the previous generation."""
    states = 0

    def write_on(directory: Path) -> None:
        with new(directory) as manager:
            for value in ("one", "two", "three"):
                put(manager, "a", value)

    def crash_again(crash: Crash) -> None:
        nonlocal states
        second = crash.again(write_on).check(check)
        assert "exchange claims/.previous-a and claims/a.json" in [step.text for step in second.operations]
        states += second.states

    every_crash(SCENARIOS[name].act, setup=SCENARIOS[name].setup).check(crash_again)
    print(f"{name}, then three more: {states} states after two power losses")
    assert states >= 500


def test_what_was_seen_after_a_kill_survives_the_power_loss_after_it() -> None:
    states = 0
    for nth in itertools.count(1):
        killed: list[bool] = []
        states += every_crash(killed_and_restarted(nth, killed), setup=closed).check(check).states
        if not killed[0]:
            break
    print(f"killed at one of {nth - 1} calls, restarted, power loss: {states} states")
    assert nth > 45
    assert states >= 1500


def test_whatever_becomes_of_the_text_in_the_lock_file_nobody_minds() -> None:
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
