"""The scenarios in which the power fails while updates go over spares: each with the disk before it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

from checkpointmanager import CheckpointError, CheckpointManager, CheckpointWriteFailed
from checkpointmanager._filestore import spares
from checkpointmanager.testing import acknowledge, damage, dying, failing
from tests.checkpointmanager.spares import free_in
from tests.long import LONG

from .ledger import Began, Broken, Done, Manager, come_back, folder_of, put, remove
from .scenarios import LARGE, Scenario, batch_of_updates, three, two_threads, updated


def spared(directory: Path, count: int = 2) -> Manager:
    """Keys "a" and "c" have a previous generation each, and `count` spares are free."""
    manager = three(directory)
    value = 0
    while free_in(manager) < count:
        value += 1
        put(manager, "a", f"a{value}")
        put(manager, "c", f"c{value}")
    return manager


def one_spare(directory: Path) -> Manager:
    """Free, with an old generation of the only key "a"."""
    manager = updated(directory)
    while not free_in(manager):
        put(manager, "a", 3)
        put(manager, "a", 4)
    return manager


def many_updates(manager: Manager) -> None:
    """More updates than spares: some grow the pool, and their directory sync frees the pending spares."""
    for value in range(10, 14):
        put(manager, "a", value)
        put(manager, "c", value)


def at_the_limit(manager: Manager) -> None:
    """No spare is free and the pool is full, so the directory is synced to free them."""
    with mock.patch.object(spares, "SPARE_LIMIT", 2):
        many_updates(manager)


def of_all_sizes(manager: Manager) -> None:
    for value in ("short", LARGE, "shorter", LARGE[::-1]):
        put(manager, "a", value)


def remove_and_create_again(manager: Manager) -> None:
    """The spares still hold generations of the removed key."""
    put(manager, "a", 10)
    remove(manager, "a")
    put(manager, "a", 11)
    put(manager, "a", 12)
    put(manager, "a", 13)


def remove_twice(manager: Manager) -> None:
    for value in (10, 20):
        put(manager, "a", value)
        put(manager, "a", value + 1)
        remove(manager, "a")


def removed_by_hand(manager: Manager) -> None:
    """Between two updates: the second finds nothing to exchange with."""
    put(manager, "a", 10)
    acknowledge(Began("a", "(gone)"))
    os.unlink(manager.path_of("a"))
    put(manager, "a", 11)
    put(manager, "a", 12)


def fails_and_again(call: str, nth: int = 1, number: int = errno.EIO) -> Callable[[Manager], None]:
    """An update fails at this call; unless it is in doubt, only the old value exists. Then it is repeated."""

    def act(manager: Manager) -> None:
        put(manager, "a", 9)
        acknowledge(Began("a", 10))
        try:
            with failing(manager.path, call, number, nth=nth):
                manager.create_checkpoint("a", 10)
            acknowledge(Done("a", 10))
        except CheckpointWriteFailed as failed:
            if not failed.in_doubt:
                acknowledge(Done("a", 9))
        for value in (11, 12, 13):
            put(manager, "a", value)

    return act


def directory_sync_fails(manager: Manager) -> None:
    """All spares are pending, and one of them holds what the disk may name the current generation."""
    while free_in(manager):
        put(manager, "a", 10 + free_in(manager))
    acknowledge(Began("c", 11))
    with suppress(CheckpointWriteFailed), failing(manager.path, "fsync", nth=2) as injector:
        manager.create_checkpoint("c", 11)
    assert injector.failed
    for value in (12, 13, 14, 15):
        put(manager, "c", value)


def removal_fails_and_again(manager: Manager) -> None:
    put(manager, "a", 10)
    acknowledge(Began("a", "(gone)"))
    with suppress(CheckpointError), failing(manager.path, "fsync"):
        manager.remove_checkpoint("a")
    remove(manager, "a")
    put(manager, "a", 11)
    put(manager, "a", 12)


def names_are_lost(manager: Manager) -> None:
    """No later sync makes durable what was renamed before."""
    with suppress(OSError), failing(manager.path, "fsync"):
        manager._store._directory.sync()  # type: ignore[attr-defined]


def die(manager: Manager) -> None:
    """As the kernel does for a process that is killed."""
    store: Any = manager._store
    store._ownership.close()
    store._spares._marker.give_back()


def another_thread_fails_between_the_exchanges(manager: Manager) -> None:
    """The first exchange is lost, and the second takes the spare's name from the new generation."""
    exchange = spares.Spares.exchange

    def then_fail(self: spares.Spares, one: str, other: str) -> bool:
        is_done = exchange(self, one, other)
        if other == "a.json":
            names_are_lost(manager)
        return is_done

    acknowledge(Began("a", 10))
    with suppress(CheckpointWriteFailed), mock.patch.object(spares.Spares, "exchange", then_fail):
        manager.create_checkpoint("a", 10)
        acknowledge(Done("a", 10))
    put(manager, "c", 11)
    put(manager, "a", 12)


def first_update_is_lost_and_it_dies(manager: Manager) -> None:
    """There was no previous generation to exchange with. The next process finds no spare that names the key."""
    put(manager, "new", 1)
    put(manager, "new", 2)
    names_are_lost(manager)
    die(manager)
    with CheckpointManager[Any](manager.path) as another:
        put(another, "a", 20)
        remove(another, "new")
        put(another, "new", 3)


def spared_and_damaged(directory: Path) -> Manager:
    manager = spared(directory)
    damage.truncate(folder_of(directory), "a")
    acknowledge(Broken("a", Path(manager.path_of("a")).read_bytes()))
    with suppress(CheckpointError):
        manager.get_checkpoint("a")  # now its owner knows the key
    return manager


def roll_back(manager: Manager) -> None:
    previous = manager.previous_checkpoint("a")
    assert previous
    acknowledge(Began("a", previous.data))
    manager.recover_checkpoint("a", rollback=True)
    acknowledge(Done("a", previous.data))
    put(manager, "a", 11)
    put(manager, "a", 12)


def update_twice(manager: Manager) -> None:
    put(manager, "a", 11)
    put(manager, "a", 12)


def close(manager: Manager) -> None:
    put(manager, "a", 10)
    put(manager, "c", 10)
    manager.close()


def close_and_open(manager: Manager) -> None:
    close(manager)
    with CheckpointManager[Any](manager.path) as another:
        put(another, "a", 11)
        put(another, "a", 12)
        put(another, "a", 13)


def killed_and_restarted(nth: int, ended: list[bool]) -> Callable[[Manager], None]:
    """The process dies before its n-th call, and another process shows what it finds."""

    def act(manager: Manager) -> None:
        with dying(manager.path, nth=nth) as injector:
            put(manager, "a", 10)
            if LONG:
                put(manager, "c", 10)
                put(manager, "a", 11)
            remove(manager, "c")
            manager.close()
        ended.append(not injector.dead)
        die(manager)
        come_back(Path(manager.path).parent)

    return act


SPARED: dict[str, Scenario] = {
    "one update": Scenario(spared, lambda manager: put(manager, "a", 10), 15, 250),
    "many updates": Scenario(spared, many_updates, 200, 1),
    "many updates of few spares": Scenario(spared, at_the_limit, 200, 1),
    "of all sizes": Scenario(spared, of_all_sizes, 60),
    "batch": Scenario(spared, batch_of_updates, 60, 1),
    "two threads": Scenario(spared, two_threads, 25, 1),
    "remove, then create again": Scenario(spared, remove_and_create_again, 40, 1),
    "remove twice": Scenario(spared, remove_twice, 40),
    "removed by hand": Scenario(spared, removed_by_hand, 30, 1),
    "write fails": Scenario(spared, fails_and_again("write"), 30),
    "disk full": Scenario(spared, fails_and_again("write", number=errno.ENOSPC), 30),
    "data sync fails": Scenario(spared, fails_and_again("fdatasync"), 60),
    "exchange fails": Scenario(spared, fails_and_again("exchange"), 60),
    "second exchange fails": Scenario(spared, fails_and_again("exchange", nth=2), 60),
    "exchange not possible": Scenario(spared, fails_and_again("exchange", number=errno.EINVAL), 60),
    "directory sync fails": Scenario(spared, directory_sync_fails, 100),
    "removal fails": Scenario(spared, removal_fails_and_again, 40),
    "another thread fails between the exchanges": Scenario(spared, another_thread_fails_between_the_exchanges, 40),
    "first update is lost, and it dies": Scenario(one_spare, first_update_is_lost_and_it_dies, 40),
    "create over damage": Scenario(spared_and_damaged, update_twice, 30),
    "roll back": Scenario(spared_and_damaged, roll_back, 30),
    "close": Scenario(spared, close, 20, 1500),
    "close and open": Scenario(spared, close_and_open, 40),
}
