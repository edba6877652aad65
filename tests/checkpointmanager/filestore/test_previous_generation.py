"""The generation before: kept beside each checkpoint, gone with it, and never coming back."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, CheckpointNotFound, CheckpointWriteFailed
from checkpointmanager.testing import failing, watching

from ..contents import names
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..scenarios import known, links_refused

pytestmark = pytest.mark.usefixtures("kit_standing_by")


def previous_of(manager: LeaseManager, key: str = "a") -> Lease | None:
    found = manager.previous_checkpoint(key)
    return found.data if found else None


def test_each_write_keeps_the_one_before(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    assert previous_of(manager) is None
    for n in range(1, 5):
        before = (directory / "a.json").read_bytes()
        manager.create_checkpoint("a", Lease("a", n))
        assert (directory / ".previous-a").read_bytes() == before
    assert names(directory) == [".journal", ".lock", ".previous-a", "a.json"]


def test_it_is_the_very_file_that_was_replaced(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    inode = os.stat(directory / "a.json").st_ino
    manager.create_checkpoint("a", NEW)

    status = os.stat(directory / ".previous-a")
    assert (status.st_ino, status.st_nlink) == (inode, 1)


def test_an_unchanged_write_leaves_it(manager: LeaseManager) -> None:
    for lease in (OLD, NEW, NEW):
        manager.create_checkpoint("a", lease)
    assert previous_of(manager) == OLD


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV])
def test_where_links_are_refused_it_is_a_synced_copy(directory: Path, number: int) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        before = (directory / "a.json").read_bytes()
        with failing(directory, "link", number, lasting=True), watching(directory) as made:
            manager.create_checkpoint("a", NEW)

    assert (directory / ".previous-a").read_bytes() == before
    assert os.stat(directory / ".previous-a").st_mode & 0o777 == 0o600
    copied = next(
        call.about.split()[0] for call in made if call.name == "rename" and call.about.endswith(".previous-a")
    )
    names_of = [(call.name, call.about.split()[0]) for call in made]
    assert names_of.index(("fsync", copied)) < names_of.index(("rename", copied)), "synced, then named"
    assert names(directory, ".tmp-") == []


def test_another_failure_of_the_link_costs_only_the_previous_generation(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        for lease in (OLD, Lease("second")):
            manager.create_checkpoint("a", lease)
        with failing(directory, "link", errno.ENOSPC):
            manager.create_checkpoint("a", NEW)
        assert manager.get_checkpoint("a").data == NEW
        assert previous_of(manager) == OLD, "an older one"


def test_an_orphan_is_never_read_and_goes_when_the_key_is_created(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
    (directory / "a.json").unlink()

    with CheckpointManager(directory, LEASES) as manager:
        with pytest.raises(CheckpointNotFound):
            manager.recover_checkpoint("a", rollback=True)
        assert (directory / ".previous-a").exists(), "evidence"
        manager.create_checkpoint("a", Lease("third"))
        assert previous_of(manager) is None
        assert not (directory / ".previous-a").exists()


def test_a_previous_generation_that_cannot_be_removed_is_an_orphan_and_never_read(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
        with failing(directory, "unlink", about=".previous-a", lasting=True):
            manager.remove_checkpoint("a")
        assert names(directory, ".previous") == [".previous-a"]
        manager.create_checkpoint("a", Lease("a third"))
        assert previous_of(manager) is None


def test_the_copy_is_not_needed_for_a_checkpoint_deleted_by_hand(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    (directory / "a.json").unlink()

    assert manager.create_checkpoint("a", NEW).generation == 2
    assert names(directory) == [".journal", ".lock", "a.json"]


def test_a_copy_that_fails_leaves_no_half_copy(directory: Path) -> None:
    with known(directory) as manager:
        before = names(directory)
        full = failing(directory, "write", errno.ENOSPC, nth=3)
        with links_refused(directory), full as injector:
            manager.create_checkpoint("a", NEW)
        assert injector.failed
        assert names(directory) == before
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == (NEW, Lease("oldest"))


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_a_value_that_could_not_be_committed_never_becomes_the_previous_generation(directory: Path, call: str) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        for n in range(3):
            manager.create_checkpoint("a", Lease("a", n))
        with failing(directory, call), pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", Lease("a", 99))
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == (Lease("a", 2), Lease("a", 1))
        manager.create_checkpoint("a", Lease("a", 3))
        assert previous_of(manager) == Lease("a", 2), "a rollback would have brought back the failed value"
