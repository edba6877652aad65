"""A new generation in the file of the one before the last: what it must never touch, and when it must not be tried.

What fails on the way is in test_recycling_failures.py, readers in test_recycling_readers.py, power cuts are in
test_recycling_power_loss.py and tests/crashes, every failing call is in test_faults.py and test_interrupts.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import CheckpointManager, Outcome
from checkpointmanager._filestore import FileStore
from checkpointmanager.testing import damage, dying

from .. import recycling
from ..contents import names
from ..processes import open_descriptors
from ..recycling import Manager, files_of, previous_of, put, recycles, written_twice


@pytest.fixture
def directory(recyclable_directory: Path) -> Path:
    return recyclable_directory


@pytest.fixture
def manager(directory: Path) -> Iterator[Manager]:
    """Key "a" was written twice, so the third write may recycle."""
    with written_twice(directory) as manager:
        yield manager


def test_the_file_before_the_last_is_used_again(manager: Manager, directory: Path) -> None:
    for number in range(5):
        assert recycles(directory, put(manager, number))
    assert names(directory) == [".lock", ".previous-a", "a.json"]


def test_after_each_of_many_updates_the_previous_generation_is_the_one_before(manager: Manager) -> None:
    """Of all lengths, so that each overwrites longer ones and shorter ones."""
    before: object = "second"
    for number in range(100):
        value = [number, "x" * (number * 7919 % 9000)]
        manager.create_checkpoint("a", value)
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == (value, before)
        before = value


@pytest.mark.parametrize("sizes", [(9000, 10, 10), (10, 10, 9000), (5000, 4096, 4095), (0, 1, 0)])
def test_nothing_of_what_was_longer_remains(manager: Manager, directory: Path, sizes: tuple[int, ...]) -> None:
    for size in sizes * 2:
        assert recycles(directory, put(manager, ["x" * size, os.urandom(4).hex()]))
        assert (directory / "a.json").read_bytes().endswith(b"}\n")
    assert manager.verify().problems == {}


def test_a_batch_recycles_too(manager: Manager, directory: Path) -> None:
    keys = [f"key-{number}" for number in range(100)]
    for round_ in range(3):
        before = {key: files_of(directory, key) for key in keys}
        with manager.batch() as batch:
            for key in keys:
                batch.create_checkpoint(key, [key, round_])
    assert all(files_of(directory, key) == before[key][::-1] for key in keys)
    assert all(previous_of(manager, key) == [key, 1] for key in keys)
    assert manager.verify().intact == 101


def test_going_back_after_recycled_writes_finds_the_right_generation(manager: Manager, directory: Path) -> None:
    for number in range(3):
        manager.create_checkpoint("a", number)
    damage.ruin(directory, "a")

    assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.ROLLED_BACK
    assert manager.get_checkpoint("a").data == 1
    for number in range(10, 13):
        manager.create_checkpoint("a", number)
    assert (manager.get_checkpoint("a").data, previous_of(manager)) == (12, 11)


def test_the_first_write_of_an_owner_never_recycles(manager: Manager, directory: Path) -> None:
    """Whoever wrote before may not have made its last change durable."""
    manager.close()
    with CheckpointManager(directory) as another:
        assert not recycles(directory, put(another, 3))
        assert recycles(directory, put(another, 4))


@pytest.mark.parametrize("options", [{"sharing": True}, {"durability": "atomic"}], ids=["sharing", "atomic"])
def test_never_where_directories_are_shared_or_not_synced(directory: Path, options: dict[str, Any]) -> None:
    with CheckpointManager(directory, **options) as manager:
        for number in range(2):
            manager.create_checkpoint("a", number)
        for number in range(2, 6):
            assert not recycles(directory, put(manager, number))


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_never_where_readers_on_other_machines_are_not_seen(
    directory: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("checkpointmanager._filestore.directory.file_system_of", lambda _: kind)
    with CheckpointManager(directory) as manager:
        for number in range(2):
            manager.create_checkpoint("a", number)
        assert not recycles(directory, put(manager, 2))


def test_never_on_pyfakefs(fs: FakeFilesystem) -> None:
    """There leases and exchanges would be calls to the real kernel, about whatever has the same number."""
    with CheckpointManager("/claims") as manager:
        store = manager._store
        assert isinstance(store, FileStore)
        assert not store._recycler._works


def test_a_file_with_a_second_link_is_left_alone(manager: Manager, directory: Path, tmp_path: Path) -> None:
    """A backup of hard links, such as cp -al or rsnapshot makes."""
    for name in (".previous-a", "a.json"):
        os.link(directory / name, tmp_path / name)
    backup = {name: (tmp_path / name).read_bytes() for name in (".previous-a", "a.json")}
    assert not recycles(directory, put(manager, 3))
    assert not recycles(directory, put(manager, 4))
    assert recycles(directory, put(manager, 5))
    assert {name: (tmp_path / name).read_bytes() for name in backup} == backup


def test_two_names_of_one_file_are_left_alone(directory: Path) -> None:
    """As a writer leaves them that is killed between its two renames."""
    dead = CheckpointManager(directory)
    with recycling.never():
        for number in range(2):
            dead.create_checkpoint("a", number)
        with dying(directory, nth=8) as injector:
            dead.create_checkpoint("a", 2)
    assert str(injector.failed).endswith(" a.json")
    dead.close()
    assert len(set(files_of(directory))) == 1

    with CheckpointManager(directory) as manager:
        assert not recycles(directory, put(manager, 3))
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == (3, 1)
        assert recycles(directory, put(manager, 4))


@pytest.mark.parametrize("how", ["mode", "owner"])
def test_a_file_that_others_may_read_is_left_alone(manager: Manager, directory: Path, how: str) -> None:
    """A new generation is private, whatever was done to the file of an old one."""
    if how == "mode":
        (directory / ".previous-a").chmod(0o644)
    elif os.geteuid() != 0:
        pytest.skip("only root can give files away")
    else:
        os.chown(directory / ".previous-a", 12345, 12345)
    assert not recycles(directory, put(manager, "secret"))
    status = os.stat(directory / "a.json")
    assert (status.st_mode & 0o777, status.st_uid) == (0o600, os.geteuid())


@pytest.mark.parametrize("what", ["symlink", "dangling", "fifo", "directory"])
def test_what_is_no_file_is_left_alone(manager: Manager, directory: Path, tmp_path: Path, what: str) -> None:
    target = tmp_path / "target"
    place = directory / ".previous-a"
    place.unlink()
    if what == "fifo":
        os.mkfifo(place)
    elif what == "directory":
        place.mkdir()
    else:
        if what == "symlink":
            target.write_text("somebody else's")
            target.chmod(0o600)
        place.symlink_to(target)

    for number in range(3, 6):
        manager.create_checkpoint("a", number)
    assert manager.get_checkpoint("a").data == 5
    assert previous_of(manager) == (None if what == "directory" else 4)
    assert target.exists() == (what == "symlink")
    assert what != "symlink" or target.read_text() == "somebody else's"
    assert names(directory, ".tmp-") == []


@pytest.mark.parametrize("name", ["a.json", ".previous-a"])
def test_what_was_removed_by_hand_is_written_all_the_same(manager: Manager, directory: Path, name: str) -> None:
    (directory / name).unlink()
    manager.create_checkpoint("a", 3)
    assert manager.get_checkpoint("a").data == 3
    assert previous_of(manager) == (None if name == "a.json" else "second")
    assert names(directory, ".tmp-") == []
    manager.create_checkpoint("a", 4)
    assert recycles(directory, put(manager, 5))


def test_a_folder_in_the_place_of_the_checkpoint_does_not_stop_the_writer(manager: Manager, directory: Path) -> None:
    (directory / "a.json").unlink()
    (directory / "a.json").mkdir()
    for number in range(3, 6):
        manager.create_checkpoint("a", number)
    assert manager.get_checkpoint("a").data == 5


def test_a_file_that_is_left_alone_is_not_kept_open(manager: Manager, directory: Path, tmp_path: Path) -> None:
    os.link(directory / ".previous-a", tmp_path / "backup")
    before = open_descriptors()
    assert not recycles(directory, put(manager, 3))
    assert open_descriptors() == before
