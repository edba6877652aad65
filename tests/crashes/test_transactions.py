"""All of a transaction or nothing, whatever a power loss leaves: for the reader that comes first, and for the owner."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from checkpointmanager._filestore.commit import Commit
from checkpointmanager.testing import Crash, acknowledge, dying, every_crash, failing
from tests.long import LONG

from .ledger import GONE, Manager, folder_of
from .scenarios import new
from .together import Begin, check, put, remove, show, transact


def three(directory: Path, **options: Any) -> Manager:
    """Two keys with a previous generation each, and one without."""
    with new(directory) as manager:
        for value in (1, 2):
            put(manager, "a", value)
            put(manager, "c", value)
        put(manager, "d", 1)
    return new(directory, **options)


def known(directory: Path) -> Manager:
    """Written by the same owner, which may recycle."""
    manager = new(directory)
    for value in (1, 2):
        put(manager, "a", value)
        put(manager, "c", value)
    return manager


def shared(directory: Path) -> Manager:
    return three(directory, sharing=True)


def atomic(directory: Path) -> Manager:
    return three(directory, durability="atomic")


def orphaned(directory: Path) -> Manager:
    """The previous generation of a checkpoint that was removed by hand still exists."""
    manager = three(directory)
    os.link(folder_of(directory) / ".previous-a", folder_of(directory) / ".previous-b")
    return manager


def one(manager: Manager) -> None:
    """A put, a create and a removal."""
    transact(manager, a=3, b=1, c=GONE)


def two(manager: Manager) -> None:
    transact(manager, b=1, c=GONE)
    transact(manager, b=GONE, c=10)


def then_singles(manager: Manager) -> None:
    """A record that comes back must not undo what was done after it."""
    transact(manager, a=3, c=GONE)
    put(manager, "a", 4)
    put(manager, "c", 5)


def then_the_opposite(manager: Manager) -> None:
    transact(manager, b=1, c=GONE)
    remove(manager, "b")
    put(manager, "c", 5)
    put(manager, "b", 6)


def without_links(manager: Manager) -> None:
    with mock.patch.object(os, "link", side_effect=PermissionError(errno.EPERM, "no links here")):
        transact(manager, a=3, c=GONE)


class Scenario(NamedTuple):
    setup: Callable[[Path], Manager]
    act: Callable[[Manager], None]
    at_least: int
    at_least_twice: int = 0
    # Three unsynced files have too many possible contents to combine; all combinations of names are always tried.
    left_out: int = 0


def put_and_remove(manager: Manager) -> None:
    transact(manager, a=3, c=GONE)


def create_and_remove(manager: Manager) -> None:
    transact(manager, b=1, c=GONE)


def interrupted(act: Callable[[], None]) -> None:
    """By a signal handler that raises after the names were changed, and before they are synced."""
    with suppress(KeyboardInterrupt), mock.patch.object(Commit, "_sync_names", side_effect=KeyboardInterrupt):
        act()


def after_a_creation(manager: Manager) -> None:
    """The power loss may take it."""
    acknowledge(Begin((("b", 1),)))
    manager.create_checkpoint("b", 1)
    transact(manager, a=3, b=2)


def after_an_interrupted_creation(manager: Manager) -> None:
    interrupted(lambda: put(manager, "b", 1))
    transact(manager, a=3, b=2)


def after_an_interrupted_removal(manager: Manager) -> None:
    interrupted(lambda: remove(manager, "c"))
    transact(manager, a=3, c=4)


SCENARIOS = {
    "create and remove": Scenario(three, create_and_remove, 180, 2000),
    "remove two": Scenario(three, lambda manager: transact(manager, a=GONE, c=GONE), 90, 900),
    "put and remove": Scenario(three, put_and_remove, 200, 3000 * LONG),
    "put, create and remove": Scenario(three, one, 800, left_out=1660),
    "two after each other": Scenario(three, two, 300),
    "then single changes": Scenario(known, then_singles, 200),
    "then the opposite": Scenario(known, then_the_opposite, 200),
    "under sharing": Scenario(shared, put_and_remove, 200),
    "under sharing, then the opposite": Scenario(shared, then_the_opposite, 200),
    "without directory syncs of single changes": Scenario(atomic, put_and_remove, 200),
    "after a creation without a directory sync": Scenario(atomic, after_a_creation, 200, left_out=4980),
    "after a creation that was interrupted": Scenario(three, after_an_interrupted_creation, 200, left_out=4980),
    "after a removal that was interrupted": Scenario(three, after_an_interrupted_removal, 200, left_out=6640),
    "after a creation that was interrupted, under sharing": Scenario(
        shared, after_an_interrupted_creation, 200, left_out=4980
    ),
    "beside an orphan": Scenario(orphaned, create_and_remove, 200),
    "where links are refused": Scenario(three, without_links, 200),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_a_power_loss_leaves_it_is_all_or_nothing(name: str) -> None:
    scenario = SCENARIOS[name]
    crashes = every_crash(scenario.act, setup=scenario.setup).check(check)
    print(f"{name}: {crashes.states} states, {crashes.left_out} left out")
    assert crashes.states >= scenario.at_least
    assert crashes.left_out <= scenario.left_out


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.at_least_twice])
def test_a_second_power_loss_while_it_is_finished_changes_nothing_of_that(name: str) -> None:
    scenario = SCENARIOS[name]
    states = 0

    def crash_again(crash: Crash) -> None:
        nonlocal states
        states += crash.again(show).check(check).states

    every_crash(scenario.act, setup=scenario.setup).check(crash_again)
    print(f"{name}: {states} states after two power losses")
    assert states >= scenario.at_least_twice


def failing_in(act: Callable[[Manager], None], nth: int, lasting: bool) -> Callable[[Manager], None]:
    def fail(manager: Manager) -> None:
        with failing(manager.path, "fsync", errno.EIO, nth=nth, lasting=lasting):
            act(manager)

    return fail


def single_changes(manager: Manager) -> None:
    put(manager, "b", 7)
    put(manager, "c", 5)
    remove(manager, "b")


# What comes after a transaction that has failed. The last one concerns none of its keys.
AFTERWARDS: dict[str, Callable[[Manager], None]] = {
    "nothing": lambda manager: None,
    "the same again": create_and_remove,
    "the opposite": lambda manager: transact(manager, b=GONE, c=5),
    "single changes": single_changes,
    "another key": lambda manager: put(manager, "d", 9),
}


SYNCS = {"file": 1, "record": 2, "commit": 3, "end": 4}
SHORT = [
    (three, "commit", False, "another key"),
    (three, "commit", True, "single changes"),
    (three, "end", False, "single changes"),
    (shared, "end", True, "nothing"),
]
ALL = itertools.product([three, shared], SYNCS, [False, True], AFTERWARDS)


@pytest.mark.parametrize(("setup", "sync", "lasting", "afterwards"), ALL if LONG else SHORT)
def test_after_a_failed_sync_it_is_all_or_nothing_and_says_which(
    setup: Callable[[Path], Manager], sync: str, lasting: bool, afterwards: str
) -> None:
    """No later sync restores what a failed one has lost: the change has to be made anew."""

    def act(manager: Manager) -> None:
        failing_in(create_and_remove, SYNCS[sync], lasting)(manager)
        AFTERWARDS[afterwards](manager)

    every_crash(act, setup=setup).check(check)


def killed_and_restarted(act: Callable[[Manager], None], nth: int, ended: list[bool]) -> Callable[[Manager], None]:
    """The process dies before its n-th call, and another process of the same boot shows what it finds."""

    def act_then(manager: Manager) -> None:
        with dying(manager.path, nth=nth) as injector:
            act(manager)
        ended.append(not injector.dead)
        store: Any = manager._store
        store._ownership.close()  # as the kernel does for a dead process
        show(Path(manager.path).parent)

    return act_then


def remove_two(manager: Manager) -> None:
    transact(manager, a=GONE, c=GONE)


# With the number of the sync that fails first, and whether all later ones do.
KILLED = {
    **({"end of put and remove": (put_and_remove, 4, False)} if LONG else {}),
    "end of remove two": (remove_two, 3, False),
    "commit of remove two": (remove_two, 2, True),
}


@pytest.mark.parametrize("name", KILLED)
def test_a_process_that_is_killed_after_a_failed_sync_leaves_all_or_nothing_to_the_next_one(name: str) -> None:
    """And then the power fails. The next process sees names that a failed sync has lost, and must make them anew."""
    act, sync, lasting = KILLED[name]
    states = 0
    for nth in itertools.count(1):
        ended: list[bool] = []
        fails = failing_in(act, sync, lasting)
        states += every_crash(killed_and_restarted(fails, nth, ended), setup=three).check(check).states
        if ended[0]:
            break
    print(f"{name}: killed at one of {nth - 1} calls, {states} states")
    assert nth > 15
    assert states > 1000
