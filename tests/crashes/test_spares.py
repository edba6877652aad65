"""Every power loss while updates go over spares, and while the next owner puts in place what it finds.

Names become durable in order here, as on the file systems where spares are used.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, DirectoryUnusable
from checkpointmanager.testing import Crash, dying, every_crash, failing
from checkpointmanager.testing._scratch import fast_folder
from tests.checkpointmanager import spares
from tests.long import LONG, times

from .ledger import check, come_back, folder_of, put, rebooted, remove
from .spare_scenarios import SPARED, killed_and_restarted, spared

TWICE = [name for name, scenario in SPARED.items() if scenario.at_least_twice > (0 if LONG else 1)]


@pytest.fixture(autouse=True)
def over_spares() -> Iterator[None]:
    spares.skip_unless_possible_in(Path(fast_folder()))
    with spares.kept_order(True):
        yield


@pytest.mark.parametrize("name", SPARED)
def test_whatever_a_power_loss_leaves_all_promises_hold(name: str) -> None:
    crashes = SPARED[name].crashes("spares").check(check)
    print(f"{name}: {crashes.states} states")
    assert crashes.states >= SPARED[name].at_least
    assert crashes.left_out == 0


@pytest.mark.parametrize("name", TWICE)
def test_a_second_power_loss_while_the_next_owner_recovers_breaks_none_of_them(name: str) -> None:
    states = 0

    def crash_again(crash: Crash) -> None:
        nonlocal states
        second = crash.again(rebooted(come_back)).check(check)
        assert second.left_out == 0
        states += second.states

    SPARED[name].crashes("spares").check(crash_again)
    print(f"{name}: {states} states after two power losses")
    assert states >= SPARED[name].at_least_twice


def waiting(crash: Crash) -> bool:
    return any(name.startswith(".spare-") for name in os.listdir(folder_of(crash.directory)))


def killed_while_it_opens(
    nth: int, ended: list[bool], then: Callable[[Path], object] = come_back
) -> Callable[[Path], None]:
    """The owner dies before its n-th call, and the next one opens what that leaves."""

    def act(directory: Path) -> None:
        with dying(directory, nth=nth) as injector:
            CheckpointManager(folder_of(directory))
        ended.append(not injector.dead)
        injector.clear_the_grave()
        then(directory)

    return act


def test_an_owner_that_is_killed_at_any_call_while_it_recovers_is_followed_by_another() -> None:
    """And then the power fails."""
    states = runs = 0
    for number, crash in enumerate(crash for crash in SPARED["one update"].crashes("spares") if waiting(crash)):
        if number != 4 and not LONG:  # in this crash an exchange was lost
            continue
        for nth in itertools.count(1):
            ended: list[bool] = []
            states += crash.again(rebooted(killed_while_it_opens(nth, ended))).check(check).states
            runs += 1
            if ended[0]:
                break
    print(f"{runs} kills: {states} states")
    assert runs > times(30, 500)
    assert states > times(500, 20_000)


def test_after_a_kill_at_any_call_nothing_that_was_seen_is_lost_by_the_power_loss_after_it() -> None:
    """Bytes that were never synced are in memory, and whole: an owner that recovers them must not trust them."""
    states = 0
    for nth in itertools.count(1):
        ended: list[bool] = []
        states += every_crash(killed_and_restarted(nth, ended), setup=spared, in_order=True).check(check).states
        if ended[0]:
            break
    print(f"killed at one of {nth - 1} calls, restarted, power loss: {states} states")
    assert nth > times(25, 40)
    assert states >= times(1000, 5000)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_an_open_that_fails_at_a_sync_leaves_the_next_one_of_the_same_boot_all_it_needs(nth: int) -> None:
    """The failed sync has lost the new names, and the boot in which the spares were written is over."""
    states = failures = 0

    def fail_then_open(directory: Path) -> None:
        nonlocal failures
        folder = folder_of(directory)
        with suppress(DirectoryUnusable), failing(directory, "fsync", nth=nth, about=folder.name) as injector:
            CheckpointManager(folder).close()
        failures += bool(injector.failed)
        come_back(directory)
        with CheckpointManager(folder) as manager:
            remove(manager, "a")
            put(manager, "a", "created again")

    for crash in SPARED["one update"].crashes("spares"):
        if waiting(crash):
            states += crash.again(rebooted(fail_then_open)).check(check).states
    print(f"{failures} failures: {states} states")
    assert failures
    assert states > 100
