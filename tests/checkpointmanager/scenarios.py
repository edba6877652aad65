"""Changes made to a directory while its system calls fail: who makes them, what is there before, and what after."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from checkpointmanager import CheckpointManager, CheckpointNotFound, Outcome
from checkpointmanager.testing import damage, failing

from .leases import LEASES, NEW, OLD, Lease, LeaseManager

BEFORE = {"a": OLD, "c": OLD, "other": OLD}
MODES: dict[str, dict[str, Any]] = {
    "owner": {},
    "sharer": {"sharing": True, "lock_timeout": 0},
    "atomic": {"durability": "atomic"},
}


class Change(NamedTuple):
    """What is done with the checkpoints of BEFORE, and what is there when it is done."""

    act: Callable[[LeaseManager], object]
    after: dict[str, Lease]
    together: bool = False

    @property
    def keys(self) -> list[str]:
        """Those that are changed."""
        return [key for key in (*BEFORE, "b") if BEFORE.get(key) != self.after.get(key)]


def batch_of_three(manager: LeaseManager) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("b", NEW)
        batch.create_checkpoint("a", NEW)
        batch.remove_checkpoint("c")


def transaction_of_three(manager: LeaseManager) -> None:
    with manager.transaction() as transaction:
        transaction.create_checkpoint("b", NEW)
        transaction.update_checkpoint("a", lambda _: NEW)
        transaction.remove_checkpoint("c")


AFTER_THREE = {"a": NEW, "b": NEW, "other": OLD}
CHANGES: dict[str, Change] = {
    "create": Change(lambda manager: manager.create_checkpoint("b", NEW), BEFORE | {"b": NEW}),
    "overwrite": Change(lambda manager: manager.create_checkpoint("a", NEW), BEFORE | {"a": NEW}),
    "update": Change(lambda manager: manager.update_checkpoint("a", lambda _: NEW), BEFORE | {"a": NEW}),
    "remove": Change(lambda manager: manager.remove_checkpoint("c"), {"a": OLD, "other": OLD}),
    "batch": Change(batch_of_three, AFTER_THREE),
    "transaction": Change(transaction_of_three, AFTER_THREE, together=True),
}


def known(directory: Path, **options: Any) -> LeaseManager:
    """The checkpoints were written by this owner, and have previous generations."""
    manager = CheckpointManager(directory, LEASES, **options)
    for key in BEFORE:
        manager.create_checkpoint(key, Lease("oldest"))
        manager.create_checkpoint(key, OLD)
    return manager


def found(directory: Path, **options: Any) -> LeaseManager:
    """They were written by an owner before."""
    known(directory).close()
    return CheckpointManager(directory, LEASES, **options)


def leave_as_killed(directory: Path, change: Callable[[LeaseManager], object] = lambda _: None) -> None:
    """As an owner leaves it that is killed after a change: with its journal."""
    alive = directory.with_name(directory.name + "-alive")
    with known(alive) as manager:
        change(manager)
        shutil.copytree(alive, directory)
    directory.chmod(0o700)
    shutil.rmtree(alive)


def inherited(directory: Path, **options: Any) -> LeaseManager:
    """They were written by an owner that was killed."""
    leave_as_killed(directory)
    return CheckpointManager(directory, LEASES, **options)


PREPARATIONS: dict[str, Callable[..., LeaseManager]] = {"known": known, "found": found, "inherited": inherited}


def flipped(directory: Path) -> LeaseManager:
    known(directory).close()
    damage.flip_bit(directory, "a")
    return CheckpointManager(directory, LEASES)


def ruined(directory: Path) -> LeaseManager:
    known(directory).close()
    damage.ruin(directory, "a")
    return CheckpointManager(directory, LEASES)


# The key is damaged before: there is no old data, only old bytes.
CURES: dict[str, tuple[Callable[[Path], LeaseManager], Callable[[LeaseManager], object], Lease, Outcome | None]] = {
    "exact repair": (flipped, lambda m: m.recover_checkpoint("a"), OLD, Outcome.REPAIRED),
    "rollback": (ruined, lambda m: m.recover_checkpoint("a", rollback=True), Lease("oldest"), Outcome.ROLLED_BACK),
    "create over damage": (ruined, lambda m: m.create_checkpoint("a", NEW), NEW, None),
}


def links_refused(directory: Path) -> AbstractContextManager[Any]:
    return failing(directory, "link", errno.EPERM, lasting=True)


def values(manager: LeaseManager) -> dict[str, Lease]:
    loaded = manager.load()
    assert loaded.problems == {}
    return {key: checkpoint.data for key, checkpoint in loaded.checkpoints.items()}


def data_of(manager: LeaseManager, key: str = "a") -> Lease | None:
    try:
        return manager.get_checkpoint(key).data
    except CheckpointNotFound:
        return None


def as_after_a_kill(directory: Path, scratch: Path) -> dict[str, Lease]:
    """What the next owner finds if the owner of this directory dies now. A reader beside it must see the same."""
    copy = scratch / f"{directory.name}-killed"
    shutil.copytree(directory, copy)
    copy.chmod(0o700)
    try:
        with CheckpointManager(copy, LEASES, read_only=True) as reader:
            seen = values(reader)
        with CheckpointManager(copy, LEASES) as manager:
            assert values(manager) == seen, "the reader and the next owner disagree"
            assert not [path for path in copy.iterdir() if path.name.startswith(".tmp-")]
        return seen
    finally:
        shutil.rmtree(copy)
