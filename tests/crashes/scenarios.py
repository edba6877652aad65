"""The scenarios in which the power fails, each with the disk before it."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from checkpointmanager import CheckpointManager, DirectoryUnusable, Outcome
from checkpointmanager.testing import acknowledge, damage, dying, failing

from .oracle import GONE, Begun, Broken, Done, Manager, Served, batch, folder_of, put, remove, serve_and_write, transact

LARGE = " ".join(map(str, range(3300)))  # 15 kB: four blocks, no two alike
MATTERS_NOT = (".lock", ".tmp-*")  # one test shows that what is left of temp files indeed does not matter


class Scenario(NamedTuple):
    setup: Callable[[Path], Any]
    act: Callable[[Any], object]
    twice: bool = False  # whether a second power loss is tried in each state; for some there are too many


def new(directory: Path, **options: Any) -> Manager:
    return CheckpointManager(folder_of(directory), **options)


def created(directory: Path) -> Manager:
    manager = new(directory)
    put(manager, "a", 1)
    return manager


def updated(directory: Path) -> Manager:
    manager = created(directory)
    put(manager, "a", 2)
    return manager


def closed(directory: Path) -> Path:
    updated(directory).close()
    return directory


def found(directory: Path) -> Manager:
    """With an owner that has not written yet."""
    return new(closed(directory))


def shared(directory: Path) -> Manager:
    return new(closed(directory), sharing=True)


def three(directory: Path, **options: Any) -> Manager:
    """Two keys with a previous generation each, and one without."""
    with new(directory) as manager:
        for value in (1, 2):
            put(manager, "a", value)
            put(manager, "c", value)
        put(manager, "d", 1)
    return new(directory, **options)


def three_closed(directory: Path) -> Path:
    three(directory).close()
    return directory


def three_shared(directory: Path) -> Manager:
    return three(directory, sharing=True)


def three_atomic(directory: Path) -> Manager:
    return three(directory, durability="atomic")


def large(directory: Path) -> Manager:
    manager = created(directory)
    put(manager, "a", LARGE)
    put(manager, "a", LARGE[::-1])
    return manager


def damaged(maker: Callable[[Path, str], damage.Damage]) -> Callable[[Path], Manager]:
    def setup(directory: Path) -> Manager:
        updated(directory).close()
        maker(folder_of(directory), "a")
        acknowledge(Broken("a", (folder_of(directory) / "a.json").read_bytes()))
        return new(directory)

    return setup


def left_by_a_dead_writer(directory: Path) -> Path:
    """Temp files, the previous generation of a removed checkpoint, and one file under both names."""
    updated(directory).close()
    folder = folder_of(directory)
    (folder / ".tmp-dead-1").write_bytes(b"")
    (folder / ".tmp-dead-2").write_bytes((folder / "a.json").read_bytes())
    (folder / ".previous-b").write_bytes((folder / ".previous-a").read_bytes())
    (folder / ".previous-a").unlink()
    os.link(folder / "a.json", folder / ".previous-a")
    return directory


def removed_by_hand(directory: Path) -> Path:
    """The previous generation stays, as an orphan; it may become that of the next checkpoint."""
    closed(directory)
    (folder_of(directory) / "a.json").unlink()
    acknowledge(Served(frozenset()))
    return directory


def create_the_directory(directory: Path) -> None:
    with new(directory) as manager:
        put(manager, "a", 1)


def open_and_write(directory: Path) -> None:
    with new(directory) as manager:
        put(manager, "a", 3)
        put(manager, "b", 1)


def two_updates(manager: Manager) -> None:
    put(manager, "a", 3)
    put(manager, "a", 4)


def update(manager: Manager) -> None:
    acknowledge(Begun((("a", 3),)))
    manager.update_checkpoint("a", lambda number: number + 1)
    acknowledge(Done((("a", 3),)))


def shorter_and_longer(manager: Manager) -> None:
    put(manager, "a", "short")
    put(manager, "a", "shorter")
    put(manager, "a", LARGE)


def remove_and_create_again(manager: Manager) -> None:
    remove(manager, "a")
    put(manager, "a", 10)
    put(manager, "a", 11)


def repair(manager: Manager) -> None:
    acknowledge(Begun((("a", 2),)))
    if manager.recover_checkpoint("a").outcome is Outcome.REPAIRED:
        acknowledge(Done((("a", 2),)))


def roll_back(manager: Manager) -> None:
    acknowledge(Begun((("a", 1),)))
    if manager.recover_checkpoint("a", rollback=True).outcome is Outcome.ROLLED_BACK:
        acknowledge(Done((("a", 1),)))


def where_links_are_refused(act: Callable[[Manager], object]) -> Callable[[Manager], None]:
    def refused(manager: Manager) -> None:
        with mock.patch.object(os, "link", side_effect=PermissionError(errno.EPERM, "no links here")):
            act(manager)

    return refused


def then_the_opposite(manager: Manager) -> None:
    transact(manager, b=1, c=GONE)
    remove(manager, "b")
    put(manager, "c", 5)
    put(manager, "b", 6)


def two_threads(manager: Manager) -> None:
    def write(key: str) -> None:
        with suppress(KeyboardInterrupt):
            put(manager, key, 3)

    threads = [threading.Thread(target=write, args=(key,)) for key in ("a", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def open_again_after_a_failed_sync(nth: int) -> Callable[[Path], None]:
    def act(directory: Path) -> None:
        with suppress(DirectoryUnusable), failing(directory, "fsync", nth=nth):
            new(directory).close()
        with new(directory) as manager:
            put(manager, "a", 10)

    return act


def killed_and_restarted(
    live: Callable[[Manager], object], nth: int, then: Callable[[Path], object] = serve_and_write
) -> tuple[Callable[[Path], None], list[bool]]:
    """The process dies before its n-th call. That loses nothing, and another process shows what it finds.

    Also returns a list that tells, once the scenario has run, whether it had so many calls.
    """
    died: list[bool] = []

    def die(directory: Path) -> bool:
        with dying(directory, nth=nth) as injector, new(directory) as manager:
            live(manager)
        return injector.dead

    def act(directory: Path) -> None:
        died.append(die(directory))
        gc.collect()  # the objects of the dead process
        then(directory)

    return act, died


def nothing(directory: Path) -> Path:
    return directory


SCENARIOS: dict[str, Scenario] = {
    "first creation of the directory": Scenario(nothing, create_the_directory, twice=True),
    "two updates": Scenario(updated, two_updates, twice=True),
    "shorter, then longer": Scenario(large, shorter_and_longer),
    "read-modify-write": Scenario(found, update),
    "write under sharing": Scenario(shared, lambda manager: put(manager, "a", 3), twice=True),
    "write where links are refused": Scenario(updated, where_links_are_refused(two_updates)),
    "remove": Scenario(updated, lambda manager: remove(manager, "a"), twice=True),
    "remove, then create again": Scenario(updated, remove_and_create_again, twice=True),
    "batch of three": Scenario(three, lambda manager: batch(manager, a=3, b=1, c=GONE)),
    "two threads": Scenario(three, two_threads),
    "recover exactly": Scenario(damaged(damage.flip_bit), repair, twice=True),
    "recover by rollback": Scenario(damaged(damage.flip_byte), roll_back, twice=True),
    "create over damage": Scenario(damaged(damage.truncate), lambda manager: put(manager, "a", 3), twice=True),
    "remove what is damaged": Scenario(damaged(damage.empty), lambda manager: remove(manager, "a")),
    "open with leftovers": Scenario(left_by_a_dead_writer, open_and_write),
    "open beside an orphan, after a failed sync": Scenario(removed_by_hand, open_again_after_a_failed_sync(2)),
    "make the directory, after a failed sync": Scenario(nothing, open_again_after_a_failed_sync(1)),
    "create and remove together": Scenario(three, lambda manager: transact(manager, b=1, c=GONE), twice=True),
    "a transaction, then the opposite": Scenario(three, then_the_opposite),
    "a transaction under sharing": Scenario(three_shared, then_the_opposite),
    "a transaction without directory syncs": Scenario(three_atomic, lambda m: transact(m, a=3, c=GONE)),
    "a transaction where links are refused": Scenario(
        three, where_links_are_refused(lambda manager: transact(manager, a=3, c=GONE))
    ),
}
