"""A new generation over a spare: what it must never touch, when it must not be tried, and what happens to the spares.

Failures are in test_spare_failures.py, readers in test_spare_readers.py, what the next owner does with
spares in test_recovery_at_open.py; power cuts are in test_spare_power_loss.py and tests/crashes, every failing call
is in test_faults.py and test_interrupts.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import CheckpointManager, Outcome
from checkpointmanager._filestore import FileStore, spares
from checkpointmanager.testing import damage, watching

from ..contents import names
from ..processes import open_descriptors
from ..spares import Manager, free_in, goes_over_a_spare, previous_of, put, spares_in, with_spares


@pytest.fixture
def directory(spare_directory: Path) -> Path:
    return spare_directory


@pytest.fixture
def manager(directory: Path) -> Iterator[Manager]:
    """With three free spares and a key "a" of its own."""
    with with_spares(directory, 3) as manager:
        yield manager


def test_a_spare_is_written_over_and_the_directory_is_not_synced(manager: Manager, directory: Path) -> None:
    for number in range(3):
        with watching(directory) as calls:
            assert goes_over_a_spare(directory, put(manager, number))
        assert [call.name for call in calls if call.name in ("fsync", "fdatasync")] == ["fdatasync"]


def test_after_each_of_many_updates_the_previous_generation_is_the_one_before(manager: Manager) -> None:
    """Of all lengths, so that each overwrites longer and shorter ones."""
    before = manager.get_checkpoint("a").data
    for number in range(100):
        value = [number, "x" * (number * 7919 % 9000)]
        manager.create_checkpoint("a", value)
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == (value, before)
        before = value


@pytest.mark.parametrize("sizes", [(9000, 10, 10), (10, 10, 9000), (5000, 4096, 4095), (0, 1, 0)])
def test_nothing_of_what_was_longer_remains(manager: Manager, directory: Path, sizes: tuple[int, ...]) -> None:
    for size in sizes:
        assert goes_over_a_spare(directory, put(manager, ["x" * size, os.urandom(4).hex()]))
        assert (directory / "a.json").read_bytes().endswith(b"}\n")
        assert (directory / "a.json").stat().st_size % spares.PADDING == 0
    assert manager.verify().problems == {}


def test_a_pending_spare_is_not_written_to(manager: Manager, directory: Path) -> None:
    """Hazard 1: the disk may still call its file the current checkpoint."""
    written: list[int] = []
    for number in range(3):
        spare_files = spares_in(directory)
        manager.create_checkpoint("a", number)
        written.append(os.stat(directory / "a.json").st_ino)
        assert written[-1] in spare_files.values()
    assert free_in(manager) == 0
    assert not goes_over_a_spare(directory, put(manager, 4)), "into a new file, and the directory is synced"
    assert free_in(manager) == 4, "the replaced file is one more spare"


def test_when_there_are_enough_the_directory_is_synced_for_all_that_are_pending(
    manager: Manager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "SPARE_LIMIT", 3)
    with watching(directory) as calls:
        for number in range(7):
            assert goes_over_a_spare(directory, put(manager, number))
    assert [call.name for call in calls].count("fdatasync") == 7
    assert [call.name for call in calls].count("fsync") == 2


def test_the_pool_grows_by_itself_up_to_a_limit(manager: Manager, directory: Path) -> None:
    for number in range(3):
        with manager.batch() as batch:
            for key in range(200):
                batch.create_checkpoint(f"key-{key}", [number, key])
    assert len(spares_in(directory)) <= spares.SPARE_LIMIT
    assert len(spares_in(directory)) > 100
    assert manager.verify().problems == {}


def test_what_is_large_goes_into_a_new_file_and_leaves_no_spare(manager: Manager, directory: Path) -> None:
    for letter in "xyz":
        before = len(spares_in(directory))
        assert not goes_over_a_spare(directory, put(manager, letter * spares.SPARE_BYTES))
        assert len(spares_in(directory)) == before


def test_a_clean_close_leaves_nothing_behind(manager: Manager, directory: Path) -> None:
    """So that no leftover overrides a backup that is restored while the agent is stopped."""
    backup = (directory / "a.json").read_bytes()
    for number in range(3):
        manager.create_checkpoint("a", number)
    with watching(directory) as calls:
        manager.close()
    assert names(directory, ".spare") == []
    assert [call.name for call in calls][:2] == ["fsync", "unlink"], (
        "first the names whose data only spares hold durably"
    )
    (directory / "a.json").write_bytes(backup)
    with CheckpointManager[Any](directory) as another:
        assert another.get_checkpoint("a").data != 2


def test_a_batch_goes_over_spares_too(manager: Manager, directory: Path) -> None:
    keys = [f"key-{number}" for number in range(100)]
    for round_ in range(4):
        with watching(directory) as calls, manager.batch() as batch:
            for key in keys:
                batch.create_checkpoint(key, [key, round_])
    assert [call.name for call in calls].count("fdatasync") == 100
    assert all(previous_of(manager, key) == [key, 2] for key in keys)
    assert manager.verify().problems == {}


def test_a_rollback_finds_the_right_generation(manager: Manager, directory: Path) -> None:
    for number in range(3):
        manager.create_checkpoint("a", number)
    damage.ruin(directory, "a")

    assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.ROLLED_BACK
    assert manager.get_checkpoint("a").data == 1
    for number in range(10, 13):
        manager.create_checkpoint("a", number)
    assert (manager.get_checkpoint("a").data, previous_of(manager)) == (12, 11)


def test_a_created_key_starts_above_all_generations_that_spares_hold(manager: Manager) -> None:
    """Hazard 3: otherwise a crash would bring the removed one back."""
    for number in range(5):
        manager.create_checkpoint("a", number)
    highest = manager.get_checkpoint("a").generation
    manager.remove_checkpoint("a")
    assert manager.create_checkpoint("a", "new").generation > highest


def test_what_is_rolled_back_or_written_over_damage_counts_spares_too(manager: Manager, directory: Path) -> None:
    """Hazard 12: even if the damaged file states no generation, and there is no previous one to count from."""
    for number in range(5):
        manager.create_checkpoint("a", number)
    highest = manager.get_checkpoint("a").generation
    (directory / "a.json").write_bytes(b"")
    (directory / ".previous-a").unlink()
    assert manager.create_checkpoint("a", "new").generation > highest


def test_the_first_write_of_an_owner_goes_into_a_new_file(manager: Manager, directory: Path) -> None:
    """The writer before may not have made its last change durable."""
    manager.close()
    with CheckpointManager[Any](directory) as another:
        assert not goes_over_a_spare(directory, put(another, 3))
        assert goes_over_a_spare(directory, put(another, 4))


@pytest.mark.parametrize("options", [{"sharing": True}, {"durability": "atomic"}], ids=["sharing", "atomic"])
def test_never_where_directories_are_shared_or_not_synced(directory: Path, options: dict[str, Any]) -> None:
    with CheckpointManager(directory, **options) as manager:
        for number in range(6):
            manager.create_checkpoint("a", number)
        assert names(directory, ".spare") == []
        assert not (directory / "a.json").read_bytes().endswith(b" }\n"), "nor is anything padded"


def test_never_on_pyfakefs(fs: FakeFilesystem) -> None:
    """There leases and exchanges would reach the real kernel, and whatever file has the same descriptor number."""
    with CheckpointManager("/claims") as manager:
        store = manager._store
        assert isinstance(store, FileStore)
        assert not store._spares.works


def test_a_file_with_a_second_link_is_left_alone(manager: Manager, directory: Path, tmp_path: Path) -> None:
    """Hazard 7: a backup of hard links, such as cp -al or rsnapshot makes."""
    kept = [".previous-a", "a.json", *spares_in(directory)]
    for name in kept:
        os.link(directory / name, tmp_path / name)
    backup = {name: (tmp_path / name).read_bytes() for name in kept}
    for number in range(20):
        manager.create_checkpoint("a", number)
    assert {name: (tmp_path / name).read_bytes() for name in backup} == backup
    assert goes_over_a_spare(directory, put(manager, "last"))


@pytest.mark.parametrize("how", ["mode", "owner", "gone", "symlink", "fifo", "directory"])
def test_a_spare_that_was_changed_from_outside_is_given_up(
    manager: Manager, directory: Path, tmp_path: Path, how: str
) -> None:
    """A new generation is private and a file of its own, whatever was done to the file of an old one."""
    if how == "owner" and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    (tmp_path / "target").write_text("foreign")
    for name in spares_in(directory):
        place = directory / name
        if how == "mode":
            place.chmod(0o644)
        elif how == "owner":
            os.chown(place, 12345, 12345)
        else:
            place.unlink()
        if how == "symlink":
            place.symlink_to(tmp_path / "target")
        elif how == "fifo":
            os.mkfifo(place, 0o600)
        elif how == "directory":
            place.mkdir()
    changed = set(spares_in(directory))
    for number in range(8):
        manager.create_checkpoint("a", number)
        status = os.lstat(directory / "a.json")
        assert (status.st_mode & 0o777, status.st_uid, status.st_nlink) == (0o600, os.geteuid(), 1)
    assert (manager.get_checkpoint("a").data, previous_of(manager)) == (7, 6)
    assert not changed & set(spares_in(directory))
    assert (tmp_path / "target").read_text() == "foreign"


@pytest.mark.parametrize("what", ["symlink", "fifo", "directory"])
def test_what_is_no_file_in_the_place_of_the_previous_generation_stops_no_writer(
    manager: Manager, directory: Path, tmp_path: Path, what: str
) -> None:
    place = directory / ".previous-a"
    place.unlink()
    if what == "fifo":
        os.mkfifo(place)
    elif what == "directory":
        place.mkdir()
        (place / "treasure").touch()
    else:
        place.symlink_to(tmp_path / "target")
    for number in range(12):
        manager.create_checkpoint("a", number)
    assert (manager.get_checkpoint("a").data, previous_of(manager)) == (11, 10)
    manager.close()
    assert names(directory, ".spare") == []
    assert what != "directory" or list((directory / ".quarantine").glob("*/treasure")), "kept, as ever"


@pytest.mark.parametrize("name", ["a.json", ".previous-a"])
def test_what_was_removed_by_hand_is_written_all_the_same(manager: Manager, directory: Path, name: str) -> None:
    before = manager.get_checkpoint("a").data
    (directory / name).unlink()
    with watching(directory) as calls:
        manager.create_checkpoint("a", 3)
    assert manager.get_checkpoint("a").data == 3
    assert name == "a.json" or previous_of(manager) == before
    assert ("fsync" in [call.name for call in calls]) == (name == "a.json"), "hazard 5: acknowledged after a sync"
    manager.create_checkpoint("a", 4)
    assert previous_of(manager) == 3


def test_a_folder_in_the_place_of_the_checkpoint_does_not_stop_the_writer(manager: Manager, directory: Path) -> None:
    (directory / "a.json").unlink()
    (directory / "a.json").mkdir()
    for number in range(3, 9):
        manager.create_checkpoint("a", number)
    assert manager.get_checkpoint("a").data == 8


def test_a_file_that_is_left_alone_is_not_kept_open(manager: Manager, directory: Path, tmp_path: Path) -> None:
    for name in spares_in(directory):
        os.link(directory / name, tmp_path / name)
    before = open_descriptors()
    assert not goes_over_a_spare(directory, put(manager, 3))
    assert open_descriptors() == before
