"""A signal handler that raises, as Ctrl-C and a SIGTERM that calls sys.exit do, wherever Python may run it.

Afterwards nothing is held: other threads and processes write, and close() returns. test_interrupts.py has the
same at every system call, where it also looks at files and descriptors.
"""

from __future__ import annotations

import itertools
import random
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, CheckpointNotFound, CorruptCheckpoint, Event, EventKind
from checkpointmanager.testing import damage

from ...long import times
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..signals import Interrupted, everywhere, in_time, interrupted, locks_survive_handlers, untraced

pytestmark = [
    locks_survive_handlers,
    pytest.mark.usefixtures("uncounted", "no_waiting_for_the_disk"),
    # What a handler raises in a finalizer, Python reports and forgets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def batch(manager: LeaseManager) -> None:
    with manager.batch() as batch:
        for key in "abc":
            batch.create_checkpoint(key, NEW)
        batch.remove_checkpoint("d")


def transact(manager: LeaseManager) -> None:
    with manager.transaction() as transaction:
        for key in "abc":
            transaction.create_checkpoint(key, NEW)
        transaction.remove_checkpoint("d")


OPERATIONS: dict[str, Callable[[LeaseManager], object]] = {
    "create": lambda manager: manager.create_checkpoint("new", NEW),
    "overwrite": lambda manager: manager.create_checkpoint("a", NEW),
    "update": lambda manager: manager.update_checkpoint("a", lambda _: NEW),
    "remove": lambda manager: manager.remove_checkpoint("a"),
    "batch": batch,
    "transaction": transact,
    "read": lambda manager: manager.get_checkpoint("a"),
    "load": lambda manager: manager.load(),
    "list": lambda manager: manager.list_checkpoints(),
    "contains": lambda manager: "a" in manager,
}


def filled(directory: Path, *, sharing: bool = False) -> LeaseManager:
    manager = CheckpointManager(directory, LEASES, sharing=sharing, lock_timeout=0)
    for key in "abcd":
        manager.create_checkpoint(key, Lease("oldest"))
        manager.create_checkpoint(key, OLD)
    return manager


@pytest.mark.parametrize(
    ("name", "sharing", "more"),
    [
        *((name, False, 0) for name in OPERATIONS),
        *((name, True, 0) for name in ("overwrite", "remove", "read")),
        *((name, False, 3) for name in ("create", "update", "load")),
        ("overwrite", True, 3),
    ],
)
def test_a_handler_that_raises_anywhere_leaves_nothing_held(
    real_directory: Path, name: str, sharing: bool, more: int
) -> None:
    manager = filled(real_directory, sharing=sharing)
    # The second of two handlers in a row may prevent the release of the lock. Then the next call releases it.
    others = [CheckpointManager(real_directory, LEASES, sharing=True, lock_timeout=0)] if sharing and not more else []
    values = itertools.count()

    def act() -> Callable[[], object]:
        if name == "create":
            manager.remove_checkpoint("new")
        return lambda: OPERATIONS[name](manager)

    def write_from_elsewhere() -> None:
        for writer in (*others, manager):
            lease = Lease(f"next {next(values)}")
            writer.create_checkpoint("new" if name == "create" else "a", lease)

    def check() -> None:
        in_time(write_from_elsewhere)
        manager.create_checkpoint("a", OLD)

    places = everywhere(act, check, more)

    assert places > 10
    in_time(manager.close)
    with CheckpointManager(real_directory, LEASES) as manager:
        assert manager.verify().problems == {}


@pytest.mark.parametrize("sharing", [False, True], ids=["owner", "sharer"])
def test_an_open_that_is_interrupted_anywhere_holds_nothing_up(real_directory: Path, sharing: bool) -> None:
    filled(real_directory).close()
    managers: list[LeaseManager] = []

    def open_one() -> None:
        managers.append(CheckpointManager(real_directory, LEASES, sharing=sharing))

    def check() -> None:
        if managers:
            managers.pop().close()
        in_time(lambda: CheckpointManager(real_directory, LEASES, lock_timeout=0).close())

    assert everywhere(lambda: open_one, check) > 100
    managers.pop().close()


@pytest.mark.parametrize("more", [0, 3], ids=["once", "and again at once"])
@pytest.mark.parametrize("sharing", [False, True], ids=["owner", "sharer"])
def test_a_close_that_is_interrupted_anywhere_can_be_repeated(real_directory: Path, sharing: bool, more: int) -> None:
    managers: list[LeaseManager] = []

    def act() -> Callable[[], object]:
        managers.append(CheckpointManager(real_directory, LEASES, sharing=sharing, lock_timeout=0))
        return managers[-1].close

    def check() -> None:
        in_time(managers[-1].close)

    assert everywhere(act, check, more) > 8
    managers[-1].close()


def test_events_of_an_interrupted_call_come_with_the_next_one(real_directory: Path) -> None:
    events: list[Event] = []
    filled(real_directory).close()
    damage.ruin(real_directory, "a")
    damage.ruin(real_directory, "b")

    with CheckpointManager(real_directory, LEASES, on_event=events.append) as manager:

        def update(key: str) -> None:
            with suppress(CorruptCheckpoint):
                manager.update_checkpoint(key, lambda _: NEW)

        for at in itertools.count():
            del events[:]
            handler = interrupted(lambda: update("a"), at)
            update("b")
            assert [event.kind for event in events if event.key == "b"] == [EventKind.DAMAGE]
            assert len(events) <= 2
            if not handler.raised_at:
                break
    assert len(events) == 2
    assert at > 50


@pytest.mark.parametrize("sharing", [False, True], ids=["owner", "sharer"])
def test_thousands_of_real_signals_leave_nothing_held(real_directory: Path, sharing: bool) -> None:
    chance = random.Random(4)
    manager = filled(real_directory, sharing=sharing)
    operations = list(OPERATIONS.values())

    def handler(_: int, __: object) -> None:
        raise Interrupted

    # pytest's own hook for what a finalizer raised would be interrupted, too.
    with untraced(), mock.patch.object(sys, "unraisablehook"):
        before = signal.signal(signal.SIGPROF, handler)
        try:
            for _ in range(times(200, 2000)):
                with suppress(Interrupted):
                    # And again after a while: Python swallows what is raised in a finalizer.
                    signal.setitimer(signal.ITIMER_PROF, chance.uniform(20e-6, 600e-6), 20e-3)
                    while True:
                        with suppress(CheckpointNotFound):
                            chance.choice(operations)(manager)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    for number, key in enumerate(["a", "b", "c", "d", "new"]):
        in_time(lambda key=key, number=number: manager.create_checkpoint(key, Lease(str(number))))  # type: ignore[misc]
    in_time(manager.close)
    with CheckpointManager(real_directory, LEASES) as manager:
        assert manager.verify().problems == {}
