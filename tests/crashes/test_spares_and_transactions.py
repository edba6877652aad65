"""Updates over spares and transactions of the same keys: after a power loss both have to be put in place.

Names become durable in order here, as on the file systems where there are spares.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from checkpointmanager._filestore import FileStore, recovery
from checkpointmanager._filestore.commit import Commit
from checkpointmanager._filestore.directory import Directory
from checkpointmanager._filestore.transactions import Transactions
from checkpointmanager._format import newest
from checkpointmanager._format.newest import Candidate, Place, Verdict
from checkpointmanager.testing import Crash, Crashes, every_crash, failing
from checkpointmanager.testing._scratch import fast_folder
from tests.checkpointmanager import spares
from tests.checkpointmanager.spares import free_in
from tests.long import LONG, times

from .ledger import GONE, Manager, folder_of, rebooted
from .scenarios import new
from .test_spares import killed_while_it_opens
from .together import check, put, remove, show, transact

Patch = Callable[[], AbstractContextManager[Any]]


@pytest.fixture(autouse=True)
def over_spares() -> Iterator[None]:
    spares.skip_unless_possible_in(Path(fast_folder()))
    with spares.kept_order(True):
        yield


def spared(directory: Path) -> Manager:
    """Keys "a" and "c" were written often, and the two free spares hold old generations of both."""
    manager = new(directory)
    value = 0
    while free_in(manager) < 2:
        value += 1
        put(manager, "a", f"a{value}")
        put(manager, "c", f"c{value}")
    return manager


def updates_then_together(manager: Manager) -> None:
    put(manager, "a", 10)
    put(manager, "c", 10)
    transact(manager, a=11, c=GONE)


def together_then_updates(manager: Manager) -> None:
    transact(manager, a=11, c=11)
    put(manager, "a", 12)
    put(manager, "c", 12)


def removed_and_created_again(manager: Manager) -> None:
    put(manager, "c", 10)
    transact(manager, a=11, c=GONE)
    for value in (12, 13, 14):
        put(manager, "c", value)


def created_beside_stale_spares(manager: Manager) -> None:
    put(manager, "c", 10)
    remove(manager, "c")
    transact(manager, a=11, c=12)
    put(manager, "c", 13)


def all_of_it(manager: Manager) -> None:
    put(manager, "a", 10)
    put(manager, "a", 11)
    transact(manager, a=12, c=12)
    put(manager, "a", 13)
    transact(manager, a=GONE, b=1)
    put(manager, "a", 14)
    put(manager, "a", 15)


def names_are_lost(manager: Manager) -> None:
    """No sync makes the exchanges of these updates durable any more; only their spares hold them."""
    put(manager, "a", 10)
    put(manager, "c", 10)
    with suppress(OSError), failing(manager.path, "fsync", errno.EIO):
        manager._store._directory.sync()  # type: ignore[attr-defined]
    transact(manager, a=11, c=GONE)
    put(manager, "c", 12)


def names_are_lost_and_it_dies(manager: Manager) -> None:
    """The next owner finds all names right, but only in memory."""
    put(manager, "a", 10)
    transact(manager, a=11, c=11)
    put(manager, "a", 12)
    with suppress(OSError), failing(manager.path, "fsync", errno.EIO):
        manager._store._directory.sync()  # type: ignore[attr-defined]
    store: Any = manager._store
    store._ownership.close()  # as the kernel does for a dead process
    store._spares._marker.give_back()
    show(Path(manager.path).parent)


def another_thread_sees_a_failure(manager: Manager) -> None:
    """After the key was confirmed, and before its creation begins: the removal of the record is lost."""
    put(manager, "d", 10)
    transact(manager, a=11, d=GONE)
    run = Commit.run

    def after_a_failure(self: Commit, *args: Any, **options: Any) -> None:
        with suppress(OSError), failing(manager.path, "fsync", errno.EIO):
            self._directory.sync()
        run(self, *args, **options)

    with mock.patch.object(Commit, "run", after_a_failure):
        put(manager, "d", 12)


def creation_in_doubt(manager: Manager) -> None:
    """A member of the transaction has its name in memory, and never had it on the disk."""
    with failing(manager.path, "fsync", errno.EIO, about=".") as injector:
        put(manager, "b", 1)
    assert injector.failed
    transact(manager, a=11, b=2)


def together_fails(nth: int) -> Callable[[Manager], None]:
    def act(manager: Manager) -> None:
        put(manager, "a", 10)
        with failing(manager.path, "fsync", errno.EIO, nth=nth, about=".") as injector:
            transact(manager, a=11, c=GONE)
        assert injector.failed
        put(manager, "a", 12)
        put(manager, "c", 12)

    return act


class Scenario(NamedTuple):
    act: Callable[[Manager], None]
    at_least: int
    at_least_twice: int = 0
    left_out: int = 0  # three unsynced files have too many possible contents to combine

    def crashes(self) -> Crashes:
        return every_crash(self.act, setup=spared, in_order=True)


SCENARIOS = {
    "updates, then together": Scenario(updates_then_together, 150, 400),
    "together, then updates": Scenario(together_then_updates, 300, 400 * LONG, 1660),
    "removed together, then created again": Scenario(removed_and_created_again, 40, 400 * LONG),
    "created beside stale spares": Scenario(created_beside_stale_spares, 300, left_out=1660),
    "all of it": Scenario(all_of_it, 400, 1000 * LONG, 1660),
    "names of updates are lost": Scenario(names_are_lost, 40),
    "names are lost, and it dies": Scenario(names_are_lost_and_it_dies, 300, left_out=1660),
    "another thread sees a failure": Scenario(another_thread_sees_a_failure, 40),
    "creation in doubt": Scenario(creation_in_doubt, 300, left_out=4980),
    "commit fails": Scenario(together_fails(1), 40),
    "end fails": Scenario(together_fails(2), 40),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_a_power_loss_leaves_all_promises_hold(name: str) -> None:
    crashes = SCENARIOS[name].crashes().check(check)
    print(f"{name}: {crashes.states} states, {crashes.left_out} left out")
    assert crashes.states >= SCENARIOS[name].at_least
    assert crashes.left_out <= SCENARIOS[name].left_out


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.at_least_twice])
def test_a_second_power_loss_while_both_are_recovered_changes_nothing_of_that(name: str) -> None:
    states = first = 0

    def crash_again(crash: Crash) -> None:
        nonlocal states, first
        first += 1
        if first % times(4, 1) == 0:
            states += crash.again(rebooted(show)).check(check).states

    SCENARIOS[name].crashes().check(crash_again)
    print(f"{name}: {states} states after two power losses")
    assert states >= SCENARIOS[name].at_least_twice


def has_both(crash: Crash) -> bool:
    names = os.listdir(folder_of(crash.directory))
    return ".transaction" in names and any(name.startswith(".spare-") for name in names)


def test_an_owner_that_is_killed_at_any_call_while_it_recovers_both_is_followed_by_another() -> None:
    """And then the power fails."""
    states = runs = 0
    crashes = SCENARIOS["names of updates are lost"].crashes()
    for number, crash in enumerate(crash for crash in crashes if has_both(crash)):
        if number != 2 and not LONG:
            continue
        for nth in itertools.count(1, times(9, 1)):
            ended: list[bool] = []
            states += crash.again(rebooted(killed_while_it_opens(nth, ended, show))).check(check).states
            runs += 1
            if ended[0]:
                break
    print(f"{runs} kills: {states} states")
    assert runs > times(5, 100)
    assert states > times(100, 1000)


# Would the proof notice?


def holds(name: str, patch: Patch) -> bool:
    """With the rule broken in the scenario and in its aftermath, but not in what comes before."""

    def act(manager: Manager) -> None:
        with patch():
            SCENARIOS[name].act(manager)

    try:
        crashes = every_crash(act, setup=spared, in_order=True)
        with patch():
            crashes.check(check)
    except AssertionError:
        return False
    return True


def with_generations_that_restart() -> Any:
    return mock.patch.object(FileStore, "highest_generation", return_value=0)


def with_records_that_do_not_count() -> Any:
    """A key that a transaction removed begins at one again, although its record may come back."""
    return mock.patch.object(Transactions, "highest_generation", return_value=0)


@contextmanager
def with_spares_that_bring_back_what_was_removed() -> Iterator[None]:
    real = newest.decide

    def decide(current: int, previous: int, candidates: Any) -> Verdict | None:
        found = list(candidates)
        if current == newest.ABSENT and found:
            return Verdict(Place.CURRENT, max(found))
        return real(current, previous, found)

    def move(directory: Directory, key: str, _: Place, candidate: Candidate) -> None:
        directory.rename(candidate.name, f"{key}.json")

    with mock.patch.multiple(recovery, decide=decide, _move=move):
        yield


def without_recovery_of_spares() -> Any:
    return mock.patch("checkpointmanager._filestore.recover", return_value="")


def without_recovery_of_records() -> Any:
    return mock.patch.object(Transactions, "recover", return_value=0)


def with_readers_that_know_no_spares() -> Any:
    return mock.patch("checkpointmanager._filestore.onlooker.Onlooker.read", return_value=None)


def with_creations_taken_for_granted() -> Any:
    """A file found under its name counts as durable, whatever syncs have failed."""
    real = Transactions._staged

    def staged(self: Transactions, put: Any, files: Any) -> Any:
        with mock.patch.object(self._directory, "syncs_failed", 0):
            return real(self, put, files)

    return mock.patch.object(Transactions, "_staged", staged)


def with_names_believed() -> Any:
    return mock.patch.object(recovery, "_copied", return_value={})


KNOWN_BAD: list[tuple[str, Patch]] = [
    ("removed together, then created again", with_generations_that_restart),
    ("another thread sees a failure", with_records_that_do_not_count),
    ("updates, then together", with_spares_that_bring_back_what_was_removed),
    ("together, then updates", without_recovery_of_spares),
    ("updates, then together", without_recovery_of_records),
    ("together, then updates", with_readers_that_know_no_spares),
    ("names are lost, and it dies", with_names_believed),
    ("creation in doubt", with_creations_taken_for_granted),
]


@pytest.mark.parametrize(
    ("name", "patch"), KNOWN_BAD, ids=lambda value: value if isinstance(value, str) else value.__name__
)
def test_a_broken_rule_is_noticed(name: str, patch: Patch) -> None:
    assert not holds(name, patch)
