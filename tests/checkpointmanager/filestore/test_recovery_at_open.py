"""What an owner does with the spares of a dead owner, and what a reader sees before that: the rules one by one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from checkpointmanager._format.record import Member, MemberKind, Record, seal_record
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CorruptCheckpoint,
    DirectoryUnusable,
    Event,
    Outcome,
)
from checkpointmanager._format.envelope import Header, padded, seal
from checkpointmanager.testing import failing, watching

from ..contents import names
from ..processes import Child
from ..spares import Manager, inode_of, previous_of, with_spares

OPTIONS: list[dict[str, Any]] = [{}, {"sharing": True}, {"durability": "atomic"}]


def blob_of(key: str, generation: int, value: str) -> bytes:
    header = Header("JSON", 1, 1, key, generation, "", datetime(2026, 11, 16, tzinfo=UTC))
    return padded(seal(header, f'"{value}"'.encode()), 512)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Key "a" is at generation 5, as a dead owner left it."""
    directory = tmp_path / "claims"
    directory.mkdir(mode=0o700)
    left(directory, "a.json", blob_of("a", 5, "five"))
    left(directory, ".previous-a", blob_of("a", 4, "four"))
    left(directory, ".spares", b"spares\n")
    return directory


def left(directory: Path, name: str, blob: bytes) -> None:
    (directory / name).write_bytes(blob)
    (directory / name).chmod(0o600)


def opened(directory: Path, **options: Any) -> Manager:
    return CheckpointManager(directory, **options)


def reader_of(directory: Path) -> Manager:
    return opened(directory, read_only=True)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_highest_generation_takes_its_place_and_the_one_before_is_the_previous(
    directory: Path, options: dict[str, Any]
) -> None:
    for generation, value in ((3, "three"), (7, "seven"), (6, "six")):
        left(directory, f".spare-{generation}", blob_of("a", generation, value))
    with reader_of(directory) as reader:
        assert (reader.get_checkpoint("a").data, previous_of(reader)) == ("seven", "five")
    with opened(directory, **options) as manager:
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == ("seven", "five")
        assert names(directory, ".spare") == names(directory, ".tmp-") == []
        assert manager.create_checkpoint("a", "new").generation == 8


def test_spares_that_hold_nothing_newer_are_removed(directory: Path) -> None:
    left(directory, ".spare-1", blob_of("a", 5, "five"))
    left(directory, ".spare-2", blob_of("a", 4, "four"))
    with opened(directory) as manager:
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == ("five", "four")
        assert names(directory, ".spare") == []


def test_nothing_is_made_of_a_spare_where_the_checkpoint_is_absent(directory: Path) -> None:
    """It was removed, by hand or by its owner."""
    left(directory, ".spare-1", blob_of("a", 7, "seven"))
    (directory / "a.json").unlink()
    with reader_of(directory) as reader, pytest.raises(CheckpointNotFound):
        reader.get_checkpoint("a")
    with opened(directory) as manager:
        assert manager.list_checkpoints() == []


def test_a_damaged_checkpoint_is_not_replaced_and_the_newest_generation_can_be_rolled_back_to(directory: Path) -> None:
    left(directory, "a.json", b"rot")
    left(directory, ".spare-1", blob_of("a", 6, "six"))
    left(directory, ".spare-2", blob_of("a", 3, "three"))
    with reader_of(directory) as reader:
        with pytest.raises(CorruptCheckpoint):
            reader.get_checkpoint("a")
        assert previous_of(reader) == "six"
    with opened(directory) as manager:
        with pytest.raises(CorruptCheckpoint):
            manager.get_checkpoint("a")
        assert (directory / "a.json").read_bytes() == b"rot"
        assert previous_of(manager) == "six"
        recovered = manager.recover_checkpoint("a", rollback=True)
        assert recovered.outcome is Outcome.ROLLED_BACK
        assert manager.get_checkpoint("a").data == "six"


@pytest.mark.parametrize("by_load", [True, False])
def test_a_damaged_checkpoint_that_can_be_repaired_does_not_bring_back_an_older_generation(
    directory: Path, by_load: bool
) -> None:
    """It is repaired exactly, and then it is known that the generation beside it is the newer one."""
    blob = bytearray(blob_of("a", 5, "five"))
    blob[100] ^= 4
    left(directory, "a.json", bytes(blob))
    left(directory, ".spare-1", blob_of("a", 6, "six"))
    with opened(directory) as manager:
        if by_load:
            assert manager.load(repair=True).checkpoints["a"].data == "six"
        else:
            assert manager.recover_checkpoint("a").outcome is Outcome.REPAIRED
        assert manager.get_checkpoint("a").data == "six"
        assert manager.create_checkpoint("a", "new").generation == 7


def test_a_spare_with_one_flipped_bit_is_repaired(directory: Path) -> None:
    blob = bytearray(blob_of("a", 6, "six"))
    blob[300] ^= 4
    left(directory, ".spare-1", bytes(blob))
    with reader_of(directory) as reader:
        assert reader.get_checkpoint("a").data == "six"
    with opened(directory) as manager:
        assert manager.get_checkpoint("a").data == "six"
    assert (directory / "a.json").read_bytes() == blob_of("a", 6, "six")


def test_a_torn_spare_is_an_event(directory: Path) -> None:
    """An unfinished write, or rot of an acknowledged one: nothing distinguishes them."""
    left(directory, ".spare-1", blob_of("a", 6, "six")[:60] + blob_of("b", 2, "two")[60:])
    events: list[Event] = []
    with opened(directory, on_event=events.append) as manager:
        assert manager.get_checkpoint("a").data == "five"
    details = [event.detail for event in events if event.kind == "stale-files"]
    assert any("not whole" in detail for detail in details)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM])
@pytest.mark.parametrize("call", ["open", "read"])
def test_what_cannot_be_read_refuses_the_open_and_nothing_is_deleted(directory: Path, call: str, number: int) -> None:
    left(directory, ".spare-1", blob_of("a", 6, "six"))
    before = sorted(os.listdir(directory))
    with failing(directory, call, number, about=".spare-1"), pytest.raises(DirectoryUnusable, match=r"\.spare-1"):
        opened(directory)
    assert sorted({*os.listdir(directory)} - {".lock"}) == before
    with opened(directory) as manager:
        assert manager.get_checkpoint("a").data == "six"


def test_the_spare_of_a_newer_release_refuses_the_open(directory: Path) -> None:
    left(directory, ".spare-1", b'{"checksum":"blake9:0123456789abcdef","format":2,"key":"a"}\n')
    with pytest.raises(DirectoryUnusable, match="release"):
        opened(directory)
    assert (directory / ".spare-1").exists()


def test_a_reader_names_the_spare_that_it_cannot_read_instead_of_blaming_the_checkpoints(directory: Path) -> None:
    left(directory, ".spare-1", b'{"checksum":"blake9:0123456789abcdef","format":2,"key":"a"}\n')
    left(directory, ".transaction", seal_record(Record(1, (Member("a", MemberKind.REMOVE, 4),))))
    with reader_of(directory) as reader:
        looks: list[Callable[[], object]] = [
            reader.load,
            reader.list_checkpoints,
            lambda: reader.get_checkpoint("a"),
            lambda: reader.previous_checkpoint("a"),
            lambda: "a" in reader,
        ]
        for look in looks:
            with pytest.raises(DirectoryUnusable, match=r"\.spare-1.*release"):
                look()
        (directory / ".transaction").unlink()
        for look in (looks[0], *looks[2:4]):
            with pytest.raises(DirectoryUnusable, match=r"\.spare-1.*release"):
                look()


@pytest.mark.parametrize("key", ["../a", "a\\u0000", "a" * 201, ""], ids=["path", "nul", "long", "empty"])
def test_a_spare_whose_key_cannot_be_one_is_not_whole(directory: Path, key: str) -> None:
    left(directory.parent, "a.json", blob_of("../a", 1, "elsewhere"))
    left(directory, ".spare-1", blob_of(key, 6, "six"))
    with reader_of(directory) as reader:
        assert reader.load().checkpoints.keys() == {"a"}
    with opened(directory) as manager:
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == ("five", "four")
    assert (directory.parent / "a.json").read_bytes() == blob_of("../a", 1, "elsewhere")
    assert names(directory, ".spare") == []


def test_of_spares_with_the_same_generation_a_reader_takes_the_one_that_the_owner_takes(directory: Path) -> None:
    """No owner leaves such spares unless their data is the same; a copy by hand may."""
    left(directory, ".spare-1", blob_of("a", 6, "six"))
    left(directory, ".spare-2", blob_of("a", 6, "another six"))
    with reader_of(directory) as reader:
        assert reader.get_checkpoint("a").data == "six"
    with opened(directory) as manager:
        assert manager.get_checkpoint("a").data == "six"


def test_a_folder_in_the_place_of_the_previous_generation_gives_way_to_one_for_a_rollback(directory: Path) -> None:
    left(directory, "a.json", b"rot")
    left(directory, ".spare-1", blob_of("a", 6, "six"))
    (directory / ".previous-a").unlink()
    (directory / ".previous-a").mkdir()
    (directory / ".previous-a" / "note").touch()
    with opened(directory) as manager:
        assert previous_of(manager) == "six"
    (kept,) = (directory / ".quarantine").iterdir()
    assert names(kept) == ["note"]


def test_winners_are_written_again_and_synced_before_any_name_changes(directory: Path) -> None:
    """Hazard 2: after a kill their bytes may be in memory only."""
    left(directory, "b.json", blob_of("b", 1, "one"))
    left(directory, ".spare-1", blob_of("a", 6, "six"))
    left(directory, ".spare-2", blob_of("b", 2, "two"))
    with watching(directory) as met, opened(directory):
        calls = [str(call) for call in met]
    changes = [place for place, call in enumerate(calls) if call.startswith(("rename", "link", "unlink"))]
    for spare in (".spare-1", ".spare-2"):
        assert calls.index(f"write {spare}") < calls.index(f"fsync {spare}") < min(changes)
    removed = [place for place, call in enumerate(calls) if call.startswith("unlink .spare")]
    syncs = [place for place, call in enumerate(calls) if call in ("fsync .", f"fsync {directory}")]
    named = max(place for place, call in enumerate(calls) if call.startswith("rename"))
    assert any(named < sync < min(removed, default=len(calls)) for sync in syncs)


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_an_open_that_cannot_put_a_winner_in_place_fails_and_deletes_nothing(directory: Path, call: str) -> None:
    left(directory, ".spare-1", blob_of("a", 6, "six"))
    with failing(directory, call, about=".spare-1"), pytest.raises(DirectoryUnusable):
        opened(directory)
    assert (directory / ".spare-1").read_bytes() == blob_of("a", 6, "six")
    with opened(directory) as manager:
        assert manager.get_checkpoint("a").data == "six"


def test_names_need_not_be_exchanged_for_it(directory: Path) -> None:
    left(directory, ".spare-1", blob_of("a", 6, "six"))
    with failing(directory, "exchange", errno.ENOSYS, lasting=True) as injector, opened(directory) as manager:
        assert (manager.get_checkpoint("a").data, previous_of(manager)) == ("six", "five")
    assert "exchange" not in [call.name for call in injector.calls]


def test_it_works_on_pyfakefs(fs: FakeFilesystem) -> None:
    fs.create_dir("/claims")
    Path("/claims").chmod(0o700)
    for name, blob in {
        "a.json": blob_of("a", 5, "five"),
        ".spare-1": blob_of("a", 6, "six"),
        ".spares": b"spares\n",
    }.items():
        left(Path("/claims"), name, blob)
    with reader_of(Path("/claims")) as reader:
        assert reader.get_checkpoint("a").data == "six"
    with opened(Path("/claims")) as manager:
        assert manager.get_checkpoint("a").data == "six"


@pytest.mark.parametrize("what", ["folder", "symlink", "large"])
def test_a_foreign_entry_under_the_name_of_a_spare_does_not_stop_the_open(
    directory: Path, tmp_path: Path, what: str
) -> None:
    if what == "folder":
        (directory / ".spare-1").mkdir()
    elif what == "symlink":
        (directory / ".spare-1").symlink_to(tmp_path)
    else:
        left(directory, ".spare-1", bytes(2000))
    with opened(directory, max_bytes=1000) as manager:
        assert manager.get_checkpoint("a").data == "five"
    assert names(directory, ".spare") == []


def test_a_sharing_writer_recovers_before_it_writes_if_an_owner_came_and_died(spare_directory: Path) -> None:
    with opened(spare_directory, sharing=True) as sharer:

        def come_and_die(_: int) -> None:
            with_spares(spare_directory, 3).create_checkpoint("a", "of the dead")
            os._exit(0)

        with Child(come_and_die) as owner:
            owner.read_to_end()
        assert names(spare_directory, ".spare") != []
        assert sharer.update_checkpoint("a", lambda data: [data]).data == ["of the dead"]
        assert names(spare_directory, ".spare") == []


def test_a_reader_beside_a_living_owner_does_not_read_spares(spare_directory: Path) -> None:
    """Hazard 8: its names are right, and a write under way does not concern readers."""
    with with_spares(spare_directory, 3) as manager, reader_of(spare_directory) as reader:
        manager.create_checkpoint("a", 1)
        generation = manager.get_checkpoint("a").generation
        spare = names(spare_directory, ".spare-")[0]
        left(spare_directory, spare, blob_of("a", generation + 1, "not acknowledged"))
        with watching(spare_directory) as calls:
            assert reader.get_checkpoint("a").data == 1
        assert not [call for call in calls if call.about == spare]


def test_a_reader_never_keeps_an_owner_out(directory: Path) -> None:
    left(directory, ".spare-1", blob_of("a", 6, "six"))
    with reader_of(directory) as reader:
        for _ in range(50):
            assert reader.get_checkpoint("a").data in ("six", 1)
            with opened(directory, lock_timeout=0) as manager:
                manager.create_checkpoint("a", 1)


def test_a_reader_opened_before_the_owner_came_back_sees_what_that_owner_does(directory: Path) -> None:
    """What it has read from the spares counts only until an owner has put it in place."""
    left(directory, ".spare-1", blob_of("a", 9, "nine"))
    with reader_of(directory) as reader:
        assert reader.get_checkpoint("a").data == "nine"
        with opened(directory) as manager:
            manager.remove_checkpoint("a")
            assert manager.create_checkpoint("a", "new").generation == 1
            assert reader.get_checkpoint("a").data == "new"


def test_a_directory_that_was_copied_during_writes_can_be_opened(spare_directory: Path, tmp_path: Path) -> None:
    """Hazard 11: whole spares of a moment later or earlier are candidates like any others."""
    with with_spares(spare_directory, 3) as manager:
        for number in range(5):
            manager.create_checkpoint("a", number)
        shutil.copytree(spare_directory, tmp_path / "copy")
    with opened(tmp_path / "copy") as copy:
        assert copy.get_checkpoint("a").data == 4
        assert inode_of(tmp_path / "copy" / "a.json")


@pytest.mark.parametrize("broken", [lambda blob: blob[:100], lambda _: b"", lambda _: bytes(512)])
def test_spares_that_hold_nothing_whole_are_removed(directory: Path, broken: Callable[[bytes], bytes]) -> None:
    left(directory, ".spare-1", broken(blob_of("a", 9, "nine")))
    with opened(directory) as manager:
        assert manager.get_checkpoint("a").data == "five"
        assert names(directory, ".spare") == []
