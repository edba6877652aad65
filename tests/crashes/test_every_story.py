"""Every short story of two keys: each sequence of updates, removals and transactions, however far it gets.

The scenarios next door were chosen by hand. These are enumerated, so they include unforeseen ones: with a sync that
fails anywhere, or a death before any call; and then the power fails.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager.testing import Crash, dying, every_crash, failing
from checkpointmanager.testing._scratch import fast_folder
from tests.checkpointmanager import spares
from tests.long import LONG, times

from .ledger import GONE, Manager, rebooted
from .test_spares_and_transactions import spared
from .together import check, put, remove, show, transact

Step = Callable[[Manager, int], None]

STEPS: dict[str, Step] = {
    "a": lambda manager, value: put(manager, "a", value),
    "c": lambda manager, value: put(manager, "c", value),
    "-c": lambda manager, _: remove(manager, "c"),
    "a+c": lambda manager, value: transact(manager, a=value, c=value),
    "a-c": lambda manager, value: transact(manager, a=value, c=GONE),
}
STORIES = [story for length in range(1, times(1, 3) + 1) for story in itertools.product(STEPS, repeat=length)]
SHORT = [story for story in STORIES if len(story) <= 2] if LONG else [("a",), ("-c",), ("a-c",)]
SHORTEST = [story for story in STORIES if len(story) == 1]
AFTERMATH = ("a", "c") if LONG else ("c",)

each_story = pytest.mark.parametrize("story", STORIES, ids=" ".join)
each_short_story = pytest.mark.parametrize("story", SHORT, ids=" ".join)
each_step = pytest.mark.parametrize("story", SHORTEST, ids=" ".join)


@pytest.fixture(autouse=True)
def over_spares() -> Iterator[None]:
    if not spares.is_possible_in(Path(fast_folder())):
        pytest.skip("this file system has no leases, or cannot exchange names")
    with spares.kept_order(True):
        yield


def live(manager: Manager, story: Sequence[str]) -> None:
    for value, step in enumerate(story, start=10):
        STEPS[step](manager, value)


@each_story
def test_no_power_loss_breaks_a_promise(story: tuple[str, ...]) -> None:
    crashes = every_crash(lambda manager: live(manager, story), setup=spared, in_order=True).check(check)
    print(f"{' '.join(story)}: {crashes.states} states, {crashes.left_out} left out")
    assert crashes.states > 2


@each_step
def test_nor_does_a_second_one_while_the_next_owner_opens(story: tuple[str, ...]) -> None:
    states = first = 0

    def crash_again(crash: Crash) -> None:
        nonlocal states, first
        first += 1
        if first % times(8, 1) == 0:
            states += crash.again(rebooted(show)).check(check).states

    every_crash(lambda manager: live(manager, story), setup=spared, in_order=True).check(crash_again)
    print(f"{' '.join(story)}: {states} states after two power losses")
    assert states


@each_short_story
def test_nor_does_one_after_a_sync_that_failed(story: tuple[str, ...]) -> None:
    states = sum(states_after_failing(call, story) for call in ("fsync", "fdatasync"))
    print(f"{' '.join(story)}: {states} states after a failed sync")
    assert states


def states_after_failing(call: str, story: Sequence[str]) -> int:
    states = 0
    for nth in itertools.count(1, times(5, 1)):
        failed: list[bool] = []

        def act(manager: Manager, nth: int = nth, failed: list[bool] = failed) -> None:
            with failing(manager.path, call, errno.EIO, nth=nth) as injector:
                live(manager, story)
            failed.append(bool(injector.failed))
            live(manager, AFTERMATH)

        crashes = every_crash(act, setup=spared, in_order=True)
        if not failed[0]:
            return states
        states += crashes.check(check).states
    raise AssertionError  # it never ends


@each_short_story
def test_nor_does_one_after_a_death_and_a_restart(story: tuple[str, ...]) -> None:
    states = 0
    for nth in itertools.count(1):
        ended: list[bool] = []

        def act(manager: Manager, nth: int = nth, ended: list[bool] = ended) -> None:
            with dying(manager.path, nth=nth) as injector:
                live(manager, story)
            ended.append(not injector.dead)
            bury(manager)
            show(Path(manager.path).parent)

        crashes = every_crash(act, setup=spared, in_order=True)
        if ended[0]:
            break
        if LONG or nth == 5:
            states += crashes.check(check).states
    print(f"{' '.join(story)}: {states} states after {nth - 1} deaths")
    assert states


def bury(manager: Manager) -> None:
    """Do what the kernel does for a dead process."""
    store: Any = manager._store
    store._ownership.close()
    store._spares._marker.give_back()
