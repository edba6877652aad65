"""The generation before: kept beside each checkpoint, gone with it, and never coming back."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, CheckpointNotFound, CheckpointWriteFailed, Outcome
from checkpointmanager.testing import Call, damage, dying, failing, watching

from ..contents import names
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..scenarios import known, links_refused


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
    assert names(directory) == [".lock", ".previous-a", "a.json"]


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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_it_makes_room_for_the_update_that_replaces_it(real_directory: Path, number: int) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
        with failing(real_directory, "write", number) as injector, watching(real_directory) as calls:
            manager.create_checkpoint("a", Lease("newest"))
        assert injector.failed
        assert ("unlink", ".previous-a") in [(call.name, call.about) for call in calls]
        assert manager.get_checkpoint("a").data == Lease("newest")
        assert previous_of(manager) == NEW


def test_on_a_full_disk_a_damaged_checkpoint_keeps_it(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
        damage.truncate(real_directory, "a")
        with failing(real_directory, "write", errno.ENOSPC), pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", Lease("newest"))
        assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.ROLLED_BACK
        assert manager.get_checkpoint("a").data == OLD


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV])
def test_where_links_are_refused_it_is_a_synced_copy(real_directory: Path, number: int) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        before = (real_directory / "a.json").read_bytes()
        with failing(real_directory, "link", number, lasting=True), watching(real_directory) as made:
            manager.create_checkpoint("a", NEW)

    assert (real_directory / ".previous-a").read_bytes() == before
    assert os.stat(real_directory / ".previous-a").st_mode & 0o777 == 0o600
    calls = [call.name for call in made]
    assert calls.count("fsync") == 3
    assert calls.index("rename") > [n for n, name in enumerate(calls) if name == "fsync"][1], "synced, then named"
    assert names(real_directory, ".tmp-") == []


def test_another_failure_of_the_link_fails_the_write(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        with failing(real_directory, "link", errno.ENOSPC), pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", NEW)
        assert manager.get_checkpoint("a").data == OLD


@pytest.mark.parametrize("where", ["after the link", "after the rename to previous"])
def test_both_names_on_one_inode_after_a_kill_leave_no_temp_file(directory: Path, where: str) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
    os.link(directory / "a.json", directory / (".tmp-dead" if where == "after the link" else ".previous-a"))

    with CheckpointManager(directory, LEASES) as manager:
        for lease in (NEW, Lease("third")):
            manager.create_checkpoint("a", lease)
            assert names(directory) == [".lock", ".previous-a", "a.json"]
        assert previous_of(manager) == NEW
    assert os.stat(directory / ".previous-a").st_nlink == 1


def test_both_names_on_one_inode_after_a_failed_rename_leave_no_temp_file(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        with failing(real_directory, "rename", about="a.json"), pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", NEW)
        assert os.stat(real_directory / "a.json").st_nlink == 2
        manager.create_checkpoint("a", NEW)
        assert names(real_directory) == [".lock", ".previous-a", "a.json"]
        assert previous_of(manager) == OLD


def test_an_orphan_is_removed_at_open(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
    (directory / "a.json").unlink()

    with CheckpointManager(directory, LEASES) as manager:
        assert names(directory) == [".lock"]
        with pytest.raises(CheckpointNotFound):
            manager.recover_checkpoint("a", rollback=True)


def test_an_orphan_is_gone_and_synced_before_a_new_checkpoint_gets_its_name(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("other", OLD)
        os.rename(real_directory / "other.json", real_directory / ".previous-a")
        with watching(real_directory) as calls:
            manager.create_checkpoint("a", NEW)

    changes = [call for call in calls if call.name in ("rename", "fsync")]
    taken = next(place for place, call in enumerate(changes) if call.about.startswith(".previous-a "))
    assert changes[taken].about.endswith("-removed-a")
    assert changes[taken + 1] == Call("fsync", ".")
    assert changes[taken + 2].about.endswith(" a.json")
    assert names(real_directory) == [".lock", "a.json"]


@pytest.mark.parametrize("how", ["removed", "in a batch"])
def test_a_removed_checkpoint_never_comes_back(tmp_path: Path, how: str) -> None:
    """Killed at each call of the removal: the checkpoint is present or gone, and once gone it stays gone."""
    for nth in itertools.count(1):
        directory = tmp_path / str(nth)
        manager = known(directory)
        with dying(directory, nth=nth) as injector:
            if how == "removed":
                manager.remove_checkpoint("a")
            else:
                with manager.batch() as batch:
                    batch.remove_checkpoint("a")
        manager.close()
        gone = not (directory / "a.json").exists()

        with CheckpointManager(directory, LEASES) as reopened:
            assert ("a" not in reopened) == gone
            if gone:
                with pytest.raises(CheckpointNotFound):
                    reopened.recover_checkpoint("a", rollback=True)
                reopened.create_checkpoint("a", NEW)
                assert previous_of(reopened) is None
                (directory / "a.json").write_bytes(b"")
                assert reopened.recover_checkpoint("a", rollback=True).outcome is Outcome.HOPELESS
        if not injector.dead:
            break
    assert nth > 4
    assert gone


def test_a_previous_generation_that_cannot_be_removed_is_an_orphan_and_never_read(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
        with failing(real_directory, "rename", about=".previous-a", lasting=True):
            manager.remove_checkpoint("a")
        assert names(real_directory, ".previous") == [".previous-a"]
        manager.create_checkpoint("a", Lease("a third"))
        assert previous_of(manager) is None


def test_the_copy_is_not_needed_for_a_checkpoint_deleted_by_hand(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    (directory / "a.json").unlink()

    assert manager.create_checkpoint("a", NEW).generation == 2
    assert names(directory) == [".lock", "a.json"]


def test_a_copy_that_fails_leaves_no_half_copy(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        full = failing(real_directory, "write", errno.ENOSPC, nth=2)
        with links_refused(real_directory), full, pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", NEW)
        assert names(real_directory) == [".lock", "a.json"]
        assert manager.get_checkpoint("a").data == OLD


@pytest.mark.parametrize("call", ["exchange", "fdatasync"])
def test_a_value_that_could_not_be_written_never_becomes_the_previous_generation(
    spare_directory: Path, call: str
) -> None:
    with CheckpointManager(spare_directory, LEASES) as manager:
        for n in range(3):
            manager.create_checkpoint("a", Lease("a", n))

        broken = failing(spare_directory, call)
        with broken, pytest.raises(CheckpointWriteFailed, match="still in place"):
            manager.create_checkpoint("a", Lease("a", 99))

        assert manager.get_checkpoint("a").data == Lease("a", 2)
        previous = manager.previous_checkpoint("a")
        assert previous is not None
        assert previous.data == Lease("a", 1), "a rollback would have brought back the failed value"
        manager.create_checkpoint("a", Lease("a", 3))
        previous = manager.previous_checkpoint("a")
        assert previous is not None
        assert previous.data == Lease("a", 2)
