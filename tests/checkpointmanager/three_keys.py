"""A transaction of a put, a create and a removal, its results, and checks that the directory still works."""

from __future__ import annotations

from pathlib import Path

from checkpointmanager import CheckpointManager

from .contents import names
from .leases import LEASES, NEW, OLD, Lease, LeaseManager

BEFORE = {"a": OLD, "c": OLD}
AFTER = {"a": NEW, "b": NEW}


def filled(directory: Path, *, sharing: bool = False) -> LeaseManager:
    manager = CheckpointManager(directory, LEASES, sharing=sharing, lock_timeout=0)
    for key in "ac":
        manager.create_checkpoint(key, Lease("oldest"))
        manager.create_checkpoint(key, OLD)
    return manager


def transact(manager: LeaseManager) -> None:
    with manager.transaction() as transaction:
        transaction.update_checkpoint("a", lambda _: NEW)
        transaction.create_checkpoint("b", NEW)
        transaction.remove_checkpoint("c")


def values(manager: LeaseManager) -> dict[str, Lease]:
    loaded = manager.load()
    assert not loaded.problems
    return {key: found.data for key, found in loaded.checkpoints.items()}


def as_a_reader_sees_it(directory: Path) -> dict[str, Lease]:
    with CheckpointManager(directory, LEASES, read_only=True) as reader:
        return values(reader)


def check_reopened(directory: Path, *expected: dict[str, Lease]) -> None:
    seen = as_a_reader_sees_it(directory)
    assert seen in expected
    with CheckpointManager(directory, LEASES) as manager:
        assert names(directory, ".tmp-") == [], "no temp files"
        assert values(manager) == seen
        transact(manager)
        assert values(manager) == AFTER


def check_that_it_goes_on(manager: LeaseManager, directory: Path, *, leaves: str = ".tmp-") -> None:
    """With a change of one of its keys, and with another transaction."""
    for key in "abc":
        manager.create_checkpoint(key, Lease("next"))
    assert names(directory, leaves) == []
    assert values(manager) == dict.fromkeys("abc", Lease("next"))
    transact(manager)
    assert values(manager) == AFTER
    assert names(directory, leaves) == []
