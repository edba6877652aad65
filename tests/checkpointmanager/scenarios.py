"""Changes made to a directory while its system calls fail: each scenario with the contents before it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from checkpointmanager import CheckpointManager, CheckpointNotFound, Outcome
from checkpointmanager.testing import damage, failing

from . import spares
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


def known(directory: Path) -> LeaseManager:
    """Key "a" was written by this owner, and has a previous generation."""
    manager = CheckpointManager(directory, LEASES)
    manager.create_checkpoint("a", Lease("oldest"))
    manager.create_checkpoint("a", OLD)
    make_spares(manager)
    return manager


def make_spares(manager: LeaseManager) -> None:
    """So that the next update finds one, where spares work."""
    store: Any = manager._store
    number = 0
    while store._spares.works and spares.free_in(manager) < 2:
        manager.create_checkpoint("filler", Lease("filler", number := number + 1))
    manager.remove_checkpoint("filler")


def found(directory: Path) -> LeaseManager:
    """Key "a" was written by an owner before."""
    known(directory).close()
    return CheckpointManager(directory, LEASES)


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


def shrinking(directory: Path) -> LeaseManager:
    """The previous generation of key "a" is longer than any other."""
    manager = CheckpointManager(directory, LEASES)
    manager.create_checkpoint("a", Lease("oldest" * 100))
    manager.create_checkpoint("a", OLD)
    make_spares(manager)
    return manager


def all_known(directory: Path) -> LeaseManager:
    manager = known(directory)
    for key in "bcbc":
        manager.create_checkpoint(key, Lease(f"{key} {len(os.listdir(directory))}"))
    make_spares(manager)
    return manager


def not_exchanged(directory: Path) -> AbstractContextManager[Any]:
    return failing(directory, "exchange", errno.EINVAL, lasting=True)


def links_refused(directory: Path) -> AbstractContextManager[Any]:
    return failing(directory, "link", errno.EPERM, lasting=True)


@contextmanager
def neither_links_nor_leases(directory: Path) -> Iterator[None]:
    with links_refused(directory), failing(directory, "fcntl", errno.EINVAL, lasting=True):
        yield


def update(manager: LeaseManager) -> None:
    manager.update_checkpoint("a", lambda _: NEW)


WRITES: dict[str, Scenario] = {
    "create of a new key": Scenario(empty, lambda manager: manager.create_checkpoint("a", NEW), None, NEW),
    "create beside an orphan": Scenario(orphaned, lambda manager: manager.create_checkpoint("a", NEW), None, NEW),
    "update of a known key": Scenario(known, update, OLD, NEW),
    "first update by this owner": Scenario(found, update, OLD, NEW),
    "first create by this owner": Scenario(found, lambda manager: manager.create_checkpoint("a", NEW), OLD, NEW),
    "update with something shorter": Scenario(shrinking, update, OLD, NEW),
    "update where names are not exchanged": Scenario(known, update, OLD, NEW, not_exchanged),
    "update where links are refused": Scenario(known, update, OLD, NEW, neither_links_nor_leases),
    "remove of a known key": Scenario(known, lambda manager: manager.remove_checkpoint("a"), OLD, None),
    "remove of a found key": Scenario(found, lambda manager: manager.remove_checkpoint("a"), OLD, None),
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
