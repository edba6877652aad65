"""Every short story of two keys: each sequence of updates, removals and transactions, however far it gets.

The scenarios next door were chosen by hand. These are enumerated, so they include unforeseen ones: with a sync that
fails anywhere, an interrupt or a death at any call; and then the power fails. Each story begins with a journal that has
room for one more change, so every second change settles.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from checkpointmanager import CheckpointError
from checkpointmanager.testing import Crash, every_crash, failing
from tests.long import LONG, times

from .oracle import GONE, Manager, check, put, remove, serve, transact
from .sampling import Disturbed, sampled, states_after
from .scenarios import LARGE, killed_and_restarted, new, three, three_closed

Step = Callable[[Manager, int], None]
Act = Callable[[Manager], object]

STEPS: dict[str, Step] = {
    "a": lambda manager, value: put(manager, "a", value),
    "b": lambda manager, value: put(manager, "b", value),
    "c": lambda manager, value: put(manager, "c", value),
    "-c": lambda manager, _: remove(manager, "c"),
    "large": lambda manager, value: put(manager, "a", f"{value} {LARGE}"),
    "a+c": lambda manager, value: transact(manager, a=value, c=value),
    "a-c": lambda manager, value: transact(manager, a=value, c=GONE),
}
EVERY = [story for length in range(1, times(2, 3) + 1) for story in itertools.product(STEPS, repeat=length)]
STORIES = EVERY[:: times(3, 1)]
SHORT = [story for story in EVERY if len(story) <= 2] if LONG else [("a-c", "c"), ("-c", "large")]
AFTERMATH: tuple[tuple[str, ...], ...] = (("b",), ("c", "a"), ("a+c", "-c"), ())

each_story = pytest.mark.parametrize("story", STORIES, ids=" ".join)
each_short_story = pytest.mark.parametrize("story", SHORT, ids=" ".join)


def lived(story: Sequence[str]) -> Act:
    def live(manager: Manager) -> None:
        for value, step in enumerate(story, start=10):
            STEPS[step](manager, value)

    return live


def busy(directory: Path) -> Manager:
    """The journal has one change, and room for one more."""
    manager = three(directory)
    put(manager, "d", 2)
    return manager


@each_story
def test_no_power_loss_breaks_a_promise(story: tuple[str, ...], disk: dict[str, Any]) -> None:
    crashes = every_crash(lived(story), setup=busy, **disk).check(sampled(check))
    print(f"{' '.join(story)}: {crashes.states} states")
    assert crashes.states > 2


@each_short_story
def test_nor_does_a_second_one_while_the_next_owner_opens(story: tuple[str, ...], disk: dict[str, Any]) -> None:
    states = 0

    def crash_again(crash: Crash) -> None:
        nonlocal states
        states += crash.again(serve).check(sampled(check, first=0)).states

    every_crash(lived(story), setup=busy, **disk).check(sampled(crash_again, first=0, each=211))
    print(f"{' '.join(story)}: {states} states after two power losses")
    assert states


def twice(story: Sequence[str]) -> Callable[[Path], None]:
    """Open, live, close, and all of it again."""

    def act(directory: Path) -> None:
        for _ in range(2):
            with suppress(CheckpointError), new(directory) as manager:
                lived(story)(manager)

    return act


@each_short_story
def test_nor_does_one_while_an_owner_closes_and_opens_again(story: tuple[str, ...], disk: dict[str, Any]) -> None:
    crashes = every_crash(twice(story), setup=three_closed, **disk).check(sampled(check))
    print(f"{' '.join(story)}: {crashes.states} states")
    assert crashes.states > 2


Fail = Callable[[str], AbstractContextManager[object]]


def goes_on(manager: Manager, story: Sequence[str], fail: Fail, nth: int) -> None:
    """The owner whose sync fails goes on, and closes."""
    with fail(manager.path):
        lived(story)(manager)
    lived(AFTERMATH[nth % len(AFTERMATH)])(manager)
    manager.close()


def opens_again(directory: Path, story: Sequence[str], fail: Fail, _: int) -> None:
    """The sync fails in the first life or in its close, in the next open or after it."""
    with fail(str(directory)):
        twice(story)(directory)


class Way(NamedTuple):
    life: Callable[[Any, Sequence[str], Fail, int], None]
    setup: Callable[[Path], Any]
    stride: int
    lasting: bool = False


WAYS = {
    "once": Way(goes_on, busy, 1),
    "from then on": Way(goes_on, busy, 3, lasting=True),
    "in one of two lives": Way(opens_again, three_closed, 7),
}


@each_short_story
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_nor_does_one_after_a_sync_that_failed(story: tuple[str, ...], way: Way, disk: dict[str, Any]) -> None:
    """The kernel forgets: no later sync makes durable what this one should have."""

    def failed_sync(call: str, nth: int) -> Disturbed:
        failed: list[bool] = []

        @contextmanager
        def fail(path: str) -> Iterator[None]:
            with failing(path, call, errno.EIO, nth=nth, lasting=way.lasting) as injector:
                yield
            failed.append(bool(injector.failed))

        return lambda given: way.life(given, story, fail, nth), failed

    states = 0
    for call in ("fsync", "fdatasync"):
        numbers = itertools.count(1, times(way.stride, 1))
        states += states_after(partial(failed_sync, call), numbers, setup=way.setup, **disk)[0]
    print(f"{' '.join(story)}: {states} states after a failed sync")
    assert states


@each_short_story
@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
def test_nor_does_one_after_an_interrupt(story: tuple[str, ...], after: bool, disk: dict[str, Any]) -> None:
    """A signal handler that raises, at any call; the same owner goes on."""

    def interrupted(nth: int) -> Disturbed:
        met: list[bool] = []

        def act(manager: Manager) -> None:
            interrupt = KeyboardInterrupt()
            with (
                suppress(KeyboardInterrupt),
                failing(manager.path, failure=interrupt, nth=nth, after=after) as injector,
            ):
                lived(story)(manager)
            met.append(bool(injector.failed))
            lived(AFTERMATH[nth % len(AFTERMATH)])(manager)

        return act, met

    states, nth = states_after(interrupted, itertools.count(1, times(13, 1)), setup=busy, **disk)
    print(f"{' '.join(story)}: {states} states after {nth - 1} interrupts")
    assert nth > 4


@each_short_story
def test_nor_does_one_after_a_death_and_a_restart(story: tuple[str, ...], disk: dict[str, Any]) -> None:
    """What the next owner has served must not be lost."""
    killed = partial(killed_and_restarted, lived(story), then=serve)
    numbers = itertools.count(1 if LONG else 15, times(17, 1))
    states, nth = states_after(killed, numbers, setup=three_closed, **disk)
    print(f"{' '.join(story)}: {states} states after deaths at up to {nth} calls")
    assert states
