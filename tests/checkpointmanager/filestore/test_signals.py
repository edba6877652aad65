"""A signal handler that raises, as Ctrl-C and a SIGTERM that calls sys.exit do, wherever Python may run it.

What it raises reaches the caller as it is. Afterwards nothing is held: other threads and processes write, and close()
returns. test_faults.py has the same at every system call, where it also looks at files and descriptors.
"""

from __future__ import annotations

import errno
import gc
import itertools
import logging
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CheckpointUnreadable,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    DirectoryLocked,
    Event,
    EventKind,
)
from checkpointmanager.format import legible_data
from checkpointmanager.testing import damage, failing

from ...long import times
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..signals import Interrupted, everywhere, in_time, locks_survive_handlers, unlogged, untraced

pytestmark = [
    locks_survive_handlers,
    pytest.mark.usefixtures("uncounted", "no_waiting_for_the_disk", "few_locks"),
    # What a handler raises in a finalizer, Python reports and forgets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def other_threads_can_log() -> Iterator[None]:
    yield
    in_time(lambda: logging.getLogger(__name__).warning("the locks of logging are free"))


SHARING: dict[str, Any] = {"sharing": True}
ATOMIC: dict[str, Any] = {"durability": "atomic"}


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


READS: dict[str, Callable[[LeaseManager], object]] = {
    "read": lambda manager: manager.get_checkpoint("a"),
    "read of an absent key": lambda manager: manager.get_checkpoint("z", None),
    "previous": lambda manager: manager.previous_checkpoint("a"),
    "load": lambda manager: manager.load(),
    "load with repair": lambda manager: manager.load(repair=True),
    "verify": lambda manager: manager.verify(),
    "list": lambda manager: manager.list_checkpoints(),
    "contains": lambda manager: "a" in manager,
}
OPERATIONS = READS | {
    "create": lambda manager: manager.create_checkpoint("new", NEW),
    "overwrite": lambda manager: manager.create_checkpoint("a", NEW),
    "update": lambda manager: manager.update_checkpoint("a", lambda _: NEW),
    "remove": lambda manager: manager.remove_checkpoint("a"),
    "batch": batch,
    "transaction": transact,
}


def filled(directory: Path, **options: Any) -> LeaseManager:
    manager = CheckpointManager(directory, LEASES, lock_timeout=0, **options)
    for key in "abcd":
        manager.create_checkpoint(key, Lease("oldest"))
        manager.create_checkpoint(key, OLD)
    return manager


def fill_and_leave(directory: Path, state: str) -> None:
    """As an owner that has closed leaves it, or one that has died; nothing, if it is to be new."""
    if state == "new":
        return
    with filled(directory.with_name("alive")) as manager:
        if state == "abandoned":
            shutil.copytree(manager.path, directory, ignore=shutil.ignore_patterns(".lock"))
    if state == "closed":
        shutil.copytree(manager.path, directory)
    directory.chmod(0o700)
    shutil.rmtree(manager.path)


@pytest.mark.parametrize(
    ("name", "options", "more"),
    [
        *((name, {}, 0) for name in OPERATIONS),
        *((name, SHARING, 0) for name in ("overwrite", "remove", "read", "transaction")),
        *((name, ATOMIC, 0) for name in ("remove", "transaction")),
        *((name, {}, 3) for name in ("create", "update", "load")),
        ("overwrite", SHARING, 3),
    ],
)
def test_a_handler_that_raises_anywhere_leaves_nothing_held(
    real_directory: Path, name: str, options: dict[str, Any], more: int
) -> None:
    manager = filled(real_directory, **options)
    # The second of two handlers in a row may prevent the release of the lock. Then the next call releases it.
    shared = options is SHARING and not more
    others = [CheckpointManager(real_directory, LEASES, sharing=True, lock_timeout=0)] if shared else []
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


@pytest.mark.parametrize("name", ["read", "previous", "load", "list", "contains"])
def test_a_reader_of_a_dead_owners_directory_lets_it_pass_at_every_place(real_directory: Path, name: str) -> None:
    fill_and_leave(real_directory, "abandoned")

    def act() -> Callable[[], object]:
        manager = CheckpointManager(real_directory, LEASES, read_only=True)
        return lambda: READS[name](manager)

    assert everywhere(act) > 30


@pytest.mark.parametrize(
    ("state", "options"), [("new", {}), ("closed", {"read_only": True}), ("closed", SHARING), ("abandoned", {})]
)
def test_an_open_that_is_interrupted_anywhere_holds_nothing_up(
    real_directory: Path, state: str, options: dict[str, Any]
) -> None:
    made = real_directory.with_name("made")
    fill_and_leave(made, state)
    managers: list[LeaseManager] = []

    def act() -> Callable[[], object]:
        shutil.rmtree(real_directory, ignore_errors=True)
        if made.exists():
            shutil.copytree(made, real_directory)
        return lambda: managers.append(CheckpointManager(real_directory, LEASES, lock_timeout=0, **options))

    def open_and_close() -> None:
        CheckpointManager(real_directory, LEASES, lock_timeout=0).close()

    def check() -> None:
        while managers:
            managers.pop().close()
        try:
            in_time(open_and_close)
        except DirectoryLocked:  # by a manager that was complete, and that nobody has received
            gc.collect()
            in_time(open_and_close)

    assert everywhere(act, check) > 30
    managers.pop().close()


@pytest.mark.parametrize("more", [0, 3], ids=["once", "and again at once"])
@pytest.mark.parametrize("sharing", [False, True], ids=["owner", "sharer"])
def test_a_close_that_is_interrupted_anywhere_can_be_repeated(real_directory: Path, sharing: bool, more: int) -> None:
    managers: list[LeaseManager] = []

    def act() -> Callable[[], object]:
        managers.append(CheckpointManager(real_directory, LEASES, sharing=sharing, lock_timeout=0))
        managers[-1].create_checkpoint("a", Lease(str(len(managers))))
        return managers[-1].close

    assert everywhere(act, lambda: in_time(managers[-1].close), more) > 8


@pytest.mark.parametrize("data", ['{"holder":"a"}', '{"holder":"a"', "\udcff"], ids=["whole", "cut", "no text"])
def test_the_search_for_legible_data_swallows_nothing(data: str) -> None:
    blob = b'{"checksum":"xxh3:0123456789abcdef","data":' + data.encode("utf-8", "surrogateescape") + b"}"
    assert everywhere(lambda: lambda: legible_data(blob), kinds=[ValueError]) > 5  # what the decoder raises


def test_events_of_an_interrupted_call_come_with_the_next_one(real_directory: Path) -> None:
    events: list[Event] = []
    filled(real_directory).close()
    damage.ruin(real_directory, "a")
    damage.ruin(real_directory, "b")

    with CheckpointManager(real_directory, LEASES, on_event=events.append) as manager:

        def update(key: str) -> None:
            with suppress(CorruptCheckpoint):
                manager.update_checkpoint(key, lambda _: NEW)

        def check() -> None:
            update("b")
            assert [event.kind for event in events if event.key == "b"] == [EventKind.DAMAGE]
            assert len(events) <= 2

        def act() -> Callable[[], object]:
            events.clear()
            return lambda: update("a")

        assert everywhere(act, check) > 50
        assert [event.key for event in events] == ["a"]


@pytest.mark.parametrize("sharing", [False, True], ids=["owner", "sharer"])
def test_thousands_of_real_signals_leave_nothing_held(real_directory: Path, sharing: bool) -> None:
    chance = random.Random(4)
    manager = filled(real_directory, sharing=sharing)
    operations = list(OPERATIONS.values())

    def handler(_: int, __: object) -> None:
        raise Interrupted

    # pytest's own hook for what a finalizer raised would be interrupted, too.
    with untraced(), unlogged(), mock.patch.object(sys, "unraisablehook"):
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


def test_a_disk_that_times_out_is_still_an_error_of_the_disk(real_directory: Path) -> None:
    timed_out = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    assert isinstance(timed_out, TimeoutError)
    with filled(real_directory) as manager:
        with failing(real_directory, "read", timed_out, lasting=True), pytest.raises(CheckpointUnreadable):
            manager.get_checkpoint("a")
        with failing(real_directory, "write", timed_out), pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", OLD)
