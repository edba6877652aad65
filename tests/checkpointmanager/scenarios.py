"""Changes made to a directory while its system calls fail: each scenario with the contents before it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from checkpointmanager import CheckpointManager, CheckpointNotFound, Outcome
from checkpointmanager.testing import damage, failing

from .leases import LEASES, NEW, OLD, Lease, LeaseManager


class Scenario(NamedTuple):
    """`prepare` leaves an open manager, `act` is what is tried, `before` and `after` are the data of key "a"."""

    prepare: Callable[[Path], LeaseManager]
    act: Callable[[LeaseManager], object]
    before: Lease | None
    after: Lease | None
    world: Callable[[Path], AbstractContextManager[Any]] = nullcontext  # what the system refuses meanwhile


def empty(directory: Path) -> LeaseManager:
    return CheckpointManager(directory, LEASES)


def busy(directory: Path) -> LeaseManager:
    """This owner has written another key, so there is a journal."""
    manager = CheckpointManager(directory, LEASES)
    manager.create_checkpoint("b", OLD)
    return manager


def known(directory: Path) -> LeaseManager:
    """Key "a" was written by this owner, and has a previous generation."""
    manager = CheckpointManager(directory, LEASES)
    manager.create_checkpoint("a", Lease("oldest"))
    manager.create_checkpoint("a", OLD)
    return manager


def found(directory: Path) -> LeaseManager:
    """Key "a" was written by an owner before."""
    known(directory).close()
    return CheckpointManager(directory, LEASES)


def shared(directory: Path) -> LeaseManager:
    known(directory).close()
    return CheckpointManager(directory, LEASES, sharing=True)


def orphaned(directory: Path) -> LeaseManager:
    """A removed checkpoint has left its previous generation, after this owner last checked."""
    manager = CheckpointManager(directory, LEASES)
    manager.create_checkpoint("orphan", OLD)
    os.rename(directory / "orphan.json", directory / ".previous-a")
    return manager


def flipped(directory: Path) -> LeaseManager:
    known(directory).close()
    damage.flip_bit(directory, "a")
    return CheckpointManager(directory, LEASES)


def ruined(directory: Path) -> LeaseManager:
    known(directory).close()
    damage.ruin(directory, "a")
    return CheckpointManager(directory, LEASES)


def batch_of_three(manager: LeaseManager) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("b", NEW)
        batch.create_checkpoint("a", NEW)
        batch.remove_checkpoint("c")


def all_known(directory: Path) -> LeaseManager:
    manager = known(directory)
    for key in "bcbc":
        manager.create_checkpoint(key, Lease(f"{key} {len(os.listdir(directory))}"))
    return manager


def links_refused(directory: Path) -> AbstractContextManager[Any]:
    return failing(directory, "link", errno.EPERM, lasting=True)


def update(manager: LeaseManager) -> None:
    manager.update_checkpoint("a", lambda _: NEW)


def create(manager: LeaseManager) -> None:
    manager.create_checkpoint("a", NEW)


def remove(manager: LeaseManager) -> None:
    manager.remove_checkpoint("a")


# The first change by an owner also makes the journal.
WRITES: dict[str, Scenario] = {
    "create of a new key": Scenario(empty, create, None, NEW),
    "create beside other keys": Scenario(busy, create, None, NEW),
    "create beside an orphan": Scenario(orphaned, create, None, NEW),
    "update of a known key": Scenario(known, update, OLD, NEW),
    "first update by this owner": Scenario(found, update, OLD, NEW),
    "first create by this owner": Scenario(found, create, OLD, NEW),
    "update where links are refused": Scenario(known, update, OLD, NEW, links_refused),
    "update in a shared directory": Scenario(shared, update, OLD, NEW),
    "remove of a known key": Scenario(known, remove, OLD, None),
    "remove of a found key": Scenario(found, remove, OLD, None),
    "remove in a shared directory": Scenario(shared, remove, OLD, None),
    "batch of three": Scenario(found, batch_of_three, OLD, NEW),
    "batch of known keys": Scenario(all_known, batch_of_three, OLD, NEW),
}

# The key is damaged before: there is no old data, only old bytes.
CURES: dict[str, tuple[Callable[[Path], LeaseManager], Callable[[LeaseManager], object], Lease, Outcome | None]] = {
    "exact repair": (flipped, lambda m: m.recover_checkpoint("a"), OLD, Outcome.REPAIRED),
    "rollback": (ruined, lambda m: m.recover_checkpoint("a", rollback=True), Lease("oldest"), Outcome.ROLLED_BACK),
    "create over damage": (ruined, lambda m: m.create_checkpoint("a", NEW), NEW, None),
}


def data_of(manager: LeaseManager, key: str = "a") -> Lease | None:
    try:
        return manager.get_checkpoint(key).data
    except CheckpointNotFound:
        return None
