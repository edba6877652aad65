"""Every power loss in everything a manager does, and a second one while it recovers from the first.

Each test prints how many different disks it checked; pytest -rP shows it.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import Crash, every_crash
from tests.long import times

from .journal_scenarios import JOURNAL_SCENARIOS
from .oracle import Begun, Manager, check, folder_of, possible, serve, serve_and_write, values_of
from .sampling import sampled, states_after
from .scenarios import (
    SCENARIOS,
    closed,
    create_the_directory,
    killed_and_restarted,
    left_by_a_dead_writer,
    new,
    open_and_write,
    remove_and_create_again,
    two_updates,
)

ALL = SCENARIOS | JOURNAL_SCENARIOS
TWICE = [name for name, scenario in ALL.items() if scenario.twice]


@pytest.mark.parametrize("name", ALL)
def test_whatever_a_power_loss_leaves_all_promises_hold(name: str, disk: dict[str, Any]) -> None:
    scenario = ALL[name]
    crashes = every_crash(scenario.act, setup=scenario.setup, **disk).check(sampled(check))
    print(f"{name}: {crashes.states} states, {crashes.left_out} left out")
    assert crashes.states > 2


@pytest.mark.parametrize("name", TWICE)
def test_a_second_power_loss_during_the_restart_breaks_none_of_them(name: str, disk: dict[str, Any]) -> None:
    scenario = ALL[name]
    states = 0

    def crash_again(crash: Crash) -> None:
        nonlocal states
        states += crash.again(serve_and_write).check(sampled(check, first=0)).states

    every_crash(scenario.act, setup=scenario.setup, **disk).check(sampled(crash_again, first=0, each=211))
    print(f"{name}: {states} states after two power losses")
    assert states


@pytest.mark.parametrize("ignore", [(), (".lock",)], ids=["the lock file too", "temp files"])
def test_whatever_is_left_of_files_without_a_checkpoint_no_promise_breaks(ignore: tuple[str, ...]) -> None:
    """The text in the lock file, and what temp files hold."""
    for setup, act in ((lambda directory: directory, create_the_directory), (left_by_a_dead_writer, open_and_write)):
        crashes = every_crash(act, setup=setup, ignore=ignore).check(sampled(check))
        assert crashes.states >= 15


def test_without_directory_syncs_a_checkpoint_is_still_old_or_new(disk: dict[str, Any]) -> None:
    """durability="atomic": what was acknowledged may be lost, but nothing is ever torn."""

    def any_whole_value(crash: Crash) -> None:
        begun = possible(event for event in crash.acknowledged if isinstance(event, Begun))
        with CheckpointManager[Any](folder_of(crash.directory)) as manager:
            assert values_of(manager) in begun

    def setup(directory: Path) -> Manager:
        return new(closed(directory), durability="atomic")

    crashes = every_crash(remove_and_create_again, setup=setup, **disk).check(sampled(any_whole_value))
    print(f"atomic: {crashes.states} states")
    assert crashes.states >= 15


def test_an_owner_that_dies_at_any_call_while_it_opens_is_followed_by_another(disk: dict[str, Any]) -> None:
    """Kill, restart, kill during the restart, restart, power loss."""
    act, _ = killed_and_restarted(two_updates, 12, then=lambda directory: None)

    def half_done(directory: Path) -> Path:
        act(closed(directory))
        return directory

    killed = partial(killed_and_restarted, lambda manager: None, then=serve)
    states, nth = states_after(killed, itertools.count(1, times(4, 1)), setup=half_done, **disk)
    print(f"killed at one of {nth - 1} calls of an open: {states} states")
    assert nth >= 10
