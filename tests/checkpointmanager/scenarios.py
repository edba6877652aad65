"""What is done to a directory while its system calls fail: each scenario with what stood there before."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from checkpointmanager import CheckpointManager, CheckpointNotFound, Outcome
from checkpointmanager._filestore import recycle
from checkpointmanager.testing import damage

from .leases import LEASES, NEW, OLD, Lease, LeaseManager


class Scenario(NamedTuple):
    """`prepare` leaves an open manager, `act` is what is tried, `before` and `after` are the data of key "a"."""

    prepare: Callable[[Path], LeaseManager]
    act: Callable[[LeaseManager], object]
    before: Lease | None
    after: Lease | None
    world: Callable[[], AbstractContextManager[Any]] = nullcontext


def empty(directory: Path) -> LeaseManager:
    return CheckpointManager(directory, LEASES)


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


def orphaned(directory: Path) -> LeaseManager:
    """A removed checkpoint has left its previous generation, after this owner had looked."""
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
    damage.flip_byte(directory, "a")
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
    return manager


def all_known(directory: Path) -> LeaseManager:
    manager = known(directory)
    for key in "bcbc":
        manager.create_checkpoint(key, Lease(f"{key} {len(os.listdir(directory))}"))
    return manager


def not_exchanged() -> AbstractContextManager[Any]:
    return mock.patch.object(recycle, "exchange", side_effect=OSError(errno.EINVAL, "Invalid argument"))


@contextmanager
def neither_links_nor_leases() -> Iterator[None]:
    refused = OSError(errno.EINVAL, "Invalid argument")
    with links_refused(), mock.patch.object(recycle, "fcntl_at_once", side_effect=refused):
        yield


def links_refused() -> AbstractContextManager[Any]:
    def link(*_: object, **__: object) -> None:
        raise PermissionError(1, "no hard links here")

    return mock.patch.object(os, "link", link)


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
