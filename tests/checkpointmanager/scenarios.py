"""What is done to a directory while its system calls fail: each scenario with what stood there before."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from checkpointmanager import CheckpointManager, CheckpointNotFound, Outcome

from .damage import flip, ruin
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
    flip(directory / "a.json")
    return CheckpointManager(directory, LEASES)


def ruined(directory: Path) -> LeaseManager:
    known(directory).close()
    ruin(directory / "a.json")
    return CheckpointManager(directory, LEASES)


def batch_of_three(manager: LeaseManager) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("b", NEW)
        batch.create_checkpoint("a", NEW)
        batch.remove_checkpoint("c")


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
    "update where links are refused": Scenario(known, update, OLD, NEW, links_refused),
    "remove of a known key": Scenario(known, lambda manager: manager.remove_checkpoint("a"), OLD, None),
    "remove of a found key": Scenario(found, lambda manager: manager.remove_checkpoint("a"), OLD, None),
    "batch of three": Scenario(found, batch_of_three, OLD, NEW),
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
