"""A Ctrl-C, or the end of the process, at every system call; and writes that are cut short."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager.testing import Call, dying, failing

from ...long import sample
from ..contents import names, quarantined
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..processes import open_descriptors, open_journals
from ..scenarios import (
    BEFORE,
    CHANGES,
    CURES,
    PREPARATIONS,
    Change,
    as_after_a_kill,
    known,
    leave_as_killed,
    links_refused,
    values,
)

pytestmark = pytest.mark.usefixtures("kit_standing_by", "no_waiting_for_the_disk")


by_moment = pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])


class Moment(NamedTuple):
    """When a Ctrl-C comes: before the n-th call, or just after it."""

    nth: int
    after: bool
    interrupt: KeyboardInterrupt


def interrupted(directory: Path, moment: Moment, act: Callable[..., object], *arguments: object) -> Call | None:
    """The interrupted call; None if there were fewer calls."""
    with failing(directory, failure=moment.interrupt, nth=moment.nth, after=moment.after) as injector:
        try:
            act(*arguments)
        except KeyboardInterrupt:
            assert injector.failed is not None
            return injector.failed
    assert injector.failed is None, "nothing may swallow an interrupt"
    return None


def killed(directory: Path, nth: int, act: Callable[..., object], *arguments: object) -> bool:
    """False if there were fewer calls."""
    lived = False
    with dying(directory, nth=nth) as injector:
        act(*arguments)
        lived = True
    assert lived != injector.dead, "nothing may swallow a death"
    return injector.dead


@by_moment
def test_a_sharer_that_is_interrupted_at_any_call_gives_the_lock_back(tmp_path: Path, after: bool) -> None:
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        with CheckpointManager(directory, LEASES, sharing=True, lock_timeout=0) as manager:
            manager.create_checkpoint("a", OLD)
            call = interrupted(directory, Moment(nth, after, KeyboardInterrupt()), manager.create_checkpoint, "a", NEW)
            with CheckpointManager(directory, LEASES, sharing=True, lock_timeout=0) as other:
                other.create_checkpoint("b", NEW)
            manager.create_checkpoint("a", OLD)
        if not call:
            break
    assert nth > 11


@pytest.mark.parametrize(
    ("name", "preparation", "after"), sample(itertools.product(CHANGES, PREPARATIONS, [False, True]), 5)
)
def test_an_interrupt_at_any_call_of_a_change_leaves_nothing_behind(
    tmp_path: Path, name: str, preparation: str, after: bool
) -> None:
    change = CHANGES[name]
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        with PREPARATIONS[preparation](directory) as manager:
            descriptors = open_descriptors() - open_journals()
            moment = Moment(nth, after, KeyboardInterrupt())
            call = interrupted(directory, moment, change.act, manager)
            moment.interrupt.__traceback__ = None
            if not (after and call and call.name == "open"):
                # An interrupt just as open returns leaves a descriptor that no variable holds: no Python program can
                # close it. All others are closed.
                assert open_descriptors() - open_journals() == descriptors
                assert open_journals() <= 1
            check_old_or_new(values(manager), change)
            check_old_or_new(as_after_a_kill(directory, tmp_path), change)
            change.act(manager)
            assert values(manager) == change.after
            assert names(directory, ".tmp-") == [] or not (after or not call or call.name != "unlink")
        with CheckpointManager(directory, LEASES) as manager:
            assert values(manager) == change.after
            assert names(directory) == [name for name in names(directory) if not name.startswith((".tmp-", ".j"))]
        if not call:
            break
    assert nth > 5


def check_old_or_new(seen: dict[str, Lease], change: Change) -> None:
    """Each key, and of a transaction all keys together."""
    happened = {seen.get(key) == change.after.get(key) for key in change.keys}
    for key in {*BEFORE, *change.after}:
        assert seen.get(key) in (BEFORE.get(key), change.after.get(key))
    assert len(happened) == 1 or not change.together


def test_a_committed_change_that_was_interrupted_before_its_names_is_served_and_put_in_place_later(
    tmp_path: Path,
) -> None:
    """By the next call on its key, by a settle, or by the next owner: three ways to go on."""
    ways: dict[str, Callable[[LeaseManager], object]] = {
        "the next call": lambda manager: manager.create_checkpoint("a", NEW),
        "a settle": lambda manager: [manager.create_checkpoint(f"k{n}", OLD) for n in range(300)],
        "the next owner": lambda _: None,
    }
    for way, go_on in ways.items():
        directory = tmp_path / way
        with known(directory) as manager:
            before = (directory / "a.json").read_bytes()
            with failing(directory, "link", KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
                manager.create_checkpoint("a", NEW)
            assert (directory / "a.json").read_bytes() == before
            assert manager.get_checkpoint("a").data == NEW, "it is committed"
            go_on(manager)
            assert as_after_a_kill(directory, tmp_path)["a"] == NEW
            assert ((directory / "a.json").read_bytes() == before) == (way == "the next owner")
            previous = manager.previous_checkpoint("a")
            assert previous is not None
        with CheckpointManager(directory, LEASES) as manager:
            assert values(manager)["a"] == NEW
            previous = manager.previous_checkpoint("a")
            assert previous is not None
            assert previous.data == (NEW if way == "the next call" else OLD)


def open_and_close(directory: Path) -> None:
    CheckpointManager(directory, LEASES).close()


@pytest.mark.parametrize(("new", "after"), sample(itertools.product([True, False], [False, True]), 3))
def test_an_interrupted_open_leaves_nothing_open_and_nothing_locked(tmp_path: Path, after: bool, new: bool) -> None:
    for nth in itertools.count(1):
        root = tmp_path / str(nth)
        directory = root / "agent" / "leases"
        root.mkdir()
        if not new:
            directory.parent.mkdir()
            leave_as_killed(directory, CHANGES["transaction"].act)
            (directory / ".tmp-dead").touch()
        descriptors = open_descriptors()
        moment = Moment(nth, after, KeyboardInterrupt())
        call = interrupted(root, moment, open_and_close, directory)
        moment.interrupt.__traceback__ = None  # it holds the frames of the call, and they hold the directory
        if not (call and ((after and call.name == "open") or call.concerns(".lock"))):
            # filelock forgets its descriptor before it gives the lock back.
            assert open_descriptors() == descriptors, call
        with CheckpointManager(directory, LEASES) as manager:
            assert names(directory, ".tmp-") == []
            assert values(manager) == ({} if new else CHANGES["transaction"].after)
            manager.create_checkpoint("a", NEW)
        if not call:
            break
    assert nth > 10


@pytest.mark.parametrize("name", CURES)
def test_a_kill_at_any_call_of_a_cure_leaves_the_damaged_bytes_or_the_good_ones(tmp_path: Path, name: str) -> None:
    prepare, act, cured, _ = CURES[name]
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        manager = prepare(directory)
        damaged = (directory / "a.json").read_bytes()
        died = killed(directory, nth, act, manager)
        manager.close()
        now = (directory / "a.json").read_bytes()
        assert now == damaged or quarantined(directory) == [damaged]
        with CheckpointManager(directory, LEASES) as reopened:
            act(reopened)
            assert reopened.get_checkpoint("a").data == cured
        assert quarantined(directory) == [damaged]
        if not died:
            break
    assert nth > 15


@pytest.mark.parametrize("most", [1, 7, 100])
@pytest.mark.parametrize("links", [True, False])
def test_short_writes_are_continued(real_directory: Path, most: int, links: bool) -> None:
    write = os.write
    world = mock.patch.object(os, "write", lambda descriptor, blob: write(descriptor, bytes(blob)[:most]))

    with CheckpointManager(real_directory, LEASES) as manager, world:
        manager.create_checkpoint("a", OLD)
        with nullcontext() if links else links_refused(real_directory):
            manager.create_checkpoint("a", NEW)
        with manager.batch() as batch:
            batch.create_checkpoint("b", OLD)
            batch.create_checkpoint("c", OLD)

        assert manager.verify().intact == 3
        previous = manager.previous_checkpoint("a")
    assert previous is not None
    assert previous.data == OLD
