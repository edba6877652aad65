"""The scenarios in which the power fails: each with the disk before it, and the least number of states it must have."""

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

from checkpointmanager import CheckpointManager, CheckpointWriteFailed, DirectoryUnusable, Outcome
from checkpointmanager._filestore import spares
from checkpointmanager.testing import Crashes, acknowledge, damage, dying, every_crash, failing

from .ledger import GONE, Began, Broken, Done, Manager, come_back, folder_of, put, remove

LARGE = " ".join(map(str, range(3300)))  # 15 kB: four blocks, no two alike


class Scenario(NamedTuple):
    setup: Callable[[Path], Any]
    act: Callable[[Any], object]
    at_least: int  # states, so that the enumeration cannot shrink unnoticed
    at_least_twice: int = 0  # states after a second power loss; 0: too many to check

    def crashes(self, way: str) -> Crashes:
        """Writes over spares need names that become durable in order, and are used only where names do."""
        return every_crash(self.act, setup=self.setup, in_order=way == "spares")


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


def three(directory: Path) -> Manager:
    manager = updated(directory)
    put(manager, "c", 1)
    put(manager, "c", 2)
    return manager


def large(directory: Path) -> Manager:
    manager = created(directory)
    put(manager, "a", LARGE)
    put(manager, "a", LARGE[::-1])
    return manager


def damaged(maker: Callable[[Path, str], damage.Damage]) -> Callable[[Path], Manager]:
    def setup(directory: Path) -> Manager:
        updated(directory).close()
        folder = folder_of(directory)
        maker(folder, "a")
        acknowledge(Broken("a", (folder / "a.json").read_bytes()))
        return new(directory)

    return setup


def four_times_damaged(directory: Path) -> Manager:
    """The quarantine is full: the next copy drives out the oldest."""
    for value in range(4):
        with new(directory) as manager:
            put(manager, "a", value)
        damage.ruin(folder_of(directory), "a")
    return damaged(damage.flip_byte)(directory)


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
    acknowledge(Began("a", 3))
    manager.update_checkpoint("a", lambda number: number + 1)
    acknowledge(Done("a", 3))


def shorter_and_longer(manager: Manager) -> None:
    put(manager, "a", "short")
    put(manager, "a", "shorter")
    put(manager, "a", LARGE)


def update_under_a_reader(manager: Manager) -> None:
    """A file that a reader has open is left alone; once the reader is gone, it is overwritten."""
    with open(manager._store.path_of("a"), "rb") as reader:
        before = reader.read(10)
        put(manager, "a", 3)
        put(manager, "a", 4)
        reader.seek(0)
        assert reader.read(10) == before
    put(manager, "a", 5)
    put(manager, "a", 6)


def update_where_names_cannot_be_exchanged(manager: Manager) -> None:
    with mock.patch.object(spares, "exchange", side_effect=OSError(errno.EINVAL, "unknown flag")):
        put(manager, "a", 3)
    put(manager, "a", 4)


def remove_and_create_again(manager: Manager) -> None:
    remove(manager, "a")
    put(manager, "a", 10)
    put(manager, "a", 11)


def batch_of_three(manager: Manager) -> None:
    values: dict[str, object] = {"a": 3, "b": 1, "c": GONE}
    acknowledge(tuple(Began(key, value) for key, value in values.items()))
    with manager.batch() as batch:
        batch.create_checkpoint("a", 3)
        batch.create_checkpoint("b", 1)
        batch.remove_checkpoint("c")
    acknowledge(tuple(Done(key, value) for key, value in values.items()))


def batch_of_updates(manager: Manager) -> None:
    acknowledge((Began("a", 3), Began("c", 3)))
    with manager.batch() as batch:
        batch.create_checkpoint("a", 3)
        batch.create_checkpoint("c", 3)
    acknowledge((Done("a", 3), Done("c", 3)))


def repair(manager: Manager) -> None:
    acknowledge(Began("a", 2))
    if manager.recover_checkpoint("a").outcome is Outcome.REPAIRED:
        acknowledge(Done("a", 2))


def roll_back(manager: Manager) -> None:
    acknowledge(Began("a", 1))
    if manager.recover_checkpoint("a", rollback=True).outcome is Outcome.ROLLED_BACK:
        acknowledge(Done("a", 1))


def write_where_links_are_refused(manager: Manager) -> None:
    with mock.patch.object(os, "link", side_effect=PermissionError(errno.EPERM, "no links here")):
        put(manager, "a", 3)


def repeat_after_failed_sync(nth: int) -> Callable[[Manager], None]:
    """A write fails at this sync: 1 syncs the data, 2 the directory. Then it is repeated, and updated."""

    def act(manager: Manager) -> None:
        acknowledge(Began("a", 3))
        with suppress(CheckpointWriteFailed), failing(manager._store.path, "fsync", nth=nth):
            manager.create_checkpoint("a", 3)
        put(manager, "a", 3)
        put(manager, "a", 4)

    return act


def removed_by_hand(directory: Path) -> Manager:
    """The previous generation stays, as an orphan."""
    manager = found(directory)
    (folder_of(directory) / "a.json").unlink()
    acknowledge(Done("a", GONE))
    return manager


def left_by_hand(directory: Path) -> Path:
    removed_by_hand(directory).close()
    return directory


def remove_again_after_failed_sync(manager: Manager) -> None:
    acknowledge(Began("a", GONE))
    with suppress(CheckpointWriteFailed), failing(manager._store.path, "fsync"):
        manager.remove_checkpoint("a")
    remove(manager, "a")
    put(manager, "a", 10)


def remove_what_is_missing_after_failed_sync(manager: Manager) -> None:
    """The name of a key that was never there is not touched, whatever has failed before."""
    with suppress(CheckpointWriteFailed), failing(manager._store.path, "fsync"):
        manager.remove_checkpoint("b")
    remove(manager, "b")


def create_again_after_failed_sync(nth: int) -> Callable[[Manager], None]:
    def act(manager: Manager) -> None:
        acknowledge(Began("a", 10))
        with suppress(CheckpointWriteFailed), failing(manager._store.path, "fsync", nth=nth):
            manager.create_checkpoint("a", 10)
        put(manager, "a", 10)

    return act


def open_again_after_failed_sync(nth: int) -> Callable[[Path], None]:
    def act(directory: Path) -> None:
        with suppress(DirectoryUnusable), failing(directory, "fsync", nth=nth):
            new(directory).close()
        with new(directory) as manager:
            put(manager, "a", 10)

    return act


def two_threads(manager: Manager) -> None:
    threads = [threading.Thread(target=put, args=(manager, key, 3)) for key in ("a", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def killed_and_restarted(nth: int, killed: list[bool]) -> Callable[[Path], None]:
    """The process dies before its n-th call. That loses nothing, and another process shows what it finds."""

    def write(directory: Path) -> None:
        two_updates(new(directory))

    def act(directory: Path) -> None:
        with dying(directory, nth=nth) as injector:
            write(directory)
        killed.append(injector.dead)
        gc.collect()  # releases the lock of the dead process
        come_back(directory)

    return act


SCENARIOS: dict[str, Scenario] = {
    "first creation of the directory": Scenario(lambda directory: directory, create_the_directory, 15, 280),
    "create": Scenario(new, lambda manager: put(manager, "a", 1), 12, 250),
    "create of many blocks": Scenario(new, lambda manager: put(manager, "a", LARGE), 20, 400),
    "update": Scenario(created, lambda manager: put(manager, "a", 2), 18, 450),
    "update with a previous generation": Scenario(updated, lambda manager: put(manager, "a", 3), 18, 450),
    "two updates": Scenario(updated, two_updates, 36, 900),
    "shorter, then longer": Scenario(large, shorter_and_longer, 58, 0),
    "update under a reader": Scenario(updated, update_under_a_reader, 68, 0),
    "names cannot be exchanged": Scenario(updated, update_where_names_cannot_be_exchanged, 34, 0),
    "first write by a new owner": Scenario(found, lambda manager: put(manager, "a", 3), 18, 450),
    "read-modify-write": Scenario(found, update, 18, 450),
    "write under sharing": Scenario(shared, lambda manager: put(manager, "a", 3), 18, 450),
    "write where links are refused": Scenario(updated, write_where_links_are_refused, 36, 900),
    "remove": Scenario(updated, lambda manager: remove(manager, "a"), 6, 100),
    "remove, then create again": Scenario(updated, remove_and_create_again, 36, 800),
    "batch of three": Scenario(three, batch_of_three, 240, 6000),
    "batch of updates": Scenario(three, batch_of_updates, 198, 0),
    "two threads": Scenario(three, two_threads, 20, 0),
    "recover exactly": Scenario(damaged(damage.flip_bit), repair, 15, 300),
    "recover by rollback": Scenario(damaged(damage.flip_byte), roll_back, 15, 300),
    "create over damage": Scenario(damaged(damage.truncate), lambda manager: put(manager, "a", 3), 15, 300),
    "create over damage, quarantine full": Scenario(four_times_damaged, lambda manager: put(manager, "a", 3), 25),
    "remove what is damaged": Scenario(damaged(damage.empty), lambda manager: remove(manager, "a"), 7, 120),
    "open with leftovers": Scenario(left_by_a_dead_writer, open_and_write, 48, 1200),
    "data sync fails, write again": Scenario(updated, repeat_after_failed_sync(1), 235, 0),
    "directory sync fails, write again": Scenario(updated, repeat_after_failed_sync(2), 215, 0),
}

# A sync fails and the call is repeated. Then the sync succeeds, but in the model it makes nothing durable unless the
# change is made anew: not what the first sync should have made durable.
FAILED_SYNCS: dict[str, Scenario] = {
    "remove": Scenario(updated, remove_again_after_failed_sync, 60),
    "remove what was never there": Scenario(updated, remove_what_is_missing_after_failed_sync, 1),
    "create beside an orphan": Scenario(removed_by_hand, create_again_after_failed_sync(2), 20),
    "open with an orphan": Scenario(left_by_hand, open_again_after_failed_sync(2), 20),
    "make the directory": Scenario(lambda directory: directory, open_again_after_failed_sync(1), 15),
    **{
        f"create over damage, sync {nth}": Scenario(damaged(damage.truncate), create_again_after_failed_sync(nth), 15)
        for nth in (1, 3, 4, 5)  # of the directory, the quarantine, the data, and the directory again
    },
}
