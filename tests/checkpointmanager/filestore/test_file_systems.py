"""Which file systems are reported when a directory is opened on them, and what they may lack without harm."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import CheckpointManager, DirectoryUnusable, Event, EventKind

from ..journals import blob, journal_of, left, opened, put, reader_of, seen
from ..volume import MAKE, mounted

by_refusal = pytest.mark.parametrize(
    "number", [errno.EINVAL, errno.ENOTSUP, errno.EROFS], ids=lambda number: errno.errorcode[number]
)


@by_refusal
def test_a_parent_that_cannot_be_synced_is_no_reason_to_refuse(real_directory: Path, number: int) -> None:
    """The root of an appliance is squashfs, erofs or iso9660; the state directory below is a mount of its own."""
    with failing_sync_of(real_directory.parent, number), CheckpointManager[Any](real_directory) as manager:
        manager.create_checkpoint("a", 1)
        assert manager.get_checkpoint("a").data == 1


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=lambda number: errno.errorcode[number])
def test_a_parent_whose_sync_fails_is(real_directory: Path, number: int) -> None:
    with failing_sync_of(real_directory.parent, number), pytest.raises(DirectoryUnusable):
        CheckpointManager[Any](real_directory)
    assert not real_directory.exists(), "the next attempt makes it anew"


@by_refusal
def test_a_directory_that_cannot_be_synced_itself_is_refused(real_directory: Path, number: int) -> None:
    with failing_sync_of(real_directory, number), pytest.raises(DirectoryUnusable):
        CheckpointManager[Any](real_directory)


def failing_sync_of(path: Path, number: int) -> Any:
    fsync: Callable[[int], None] = os.fsync

    def fail(descriptor: int) -> None:
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    return mock.patch.object(os, "fsync", fail)


def on(fs: FakeFilesystem, kind: str) -> int:
    """The kernel says that /var/lib is on this kind of file system; returns the device."""
    fs.create_dir("/var/lib")
    device = os.stat("/var/lib").st_dev
    mount = f"36 35 {os.major(device)}:{os.minor(device)} / /var rw shared:1 - {kind} /dev/sda1 rw\n"
    fs.create_file("/proc/self/mountinfo", contents=f"22 1 9:9 / /proc rw - proc proc rw\n{mount}")
    return device


def kinds_of_events(directory: Path | str) -> list[EventKind]:
    events: list[Event] = []
    CheckpointManager[Any](directory, on_event=events.append).close()
    return [event.kind for event in events]


FORGETFUL = ("tmpfs", "overlay", "ramfs")
UNRELIABLE = (
    *("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "gpfs", "virtiofs", "vboxsf"),
    *("fuse", "fuseblk", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs"),
)
LOCAL = ("ext4", "xfs", "btrfs", "f2fs", "zfs", "fusectl")


@pytest.mark.parametrize("kind", [*FORGETFUL, *UNRELIABLE, *LOCAL])
def test_a_file_system_that_forgets_or_lies_is_reported(fs: FakeFilesystem, kind: str) -> None:
    on(fs, kind)
    forgetful = [EventKind.FORGETFUL_FILE_SYSTEM] * (kind in FORGETFUL)
    unreliable = [EventKind.UNRELIABLE_FILE_SYSTEM] * (kind in UNRELIABLE)
    assert kinds_of_events("/var/lib/claims") == forgetful + unreliable


def test_where_the_kernel_does_not_say_nothing_is_reported(fs: FakeFilesystem) -> None:
    fs.create_dir("/var/lib")
    assert kinds_of_events("/var/lib/claims") == []


def test_a_real_tmpfs_is_reported(tmp_path: Path) -> None:
    with mounted(tmp_path, "tmpfs") as mount:
        assert kinds_of_events(mount.path / "claims") == [EventKind.FORGETFUL_FILE_SYSTEM]


@pytest.mark.parametrize(
    ("options", "expected"),
    [("rw\nfast_commit\n", True), ("rw\nfc_debug_force\n", True), ("rw\ndata=ordered\n", False)],
)
def test_ext4_with_fast_commit_is_reported(fs: FakeFilesystem, options: str, expected: bool) -> None:
    device = on(fs, "ext4")
    fs.create_symlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}", "../../devices/virtual/block/dm-7")
    fs.create_file("/proc/fs/ext4/dm-7/options", contents=options)
    events: list[Event] = []
    CheckpointManager[Any]("/var/lib/claims", on_event=events.append).close()
    assert [event.kind for event in events] == [EventKind.UNRELIABLE_FILE_SYSTEM] * expected
    assert all("tune2fs -O ^fast_commit" in event.detail for event in events)


@pytest.mark.parametrize("feature", ["fast_commit", "^fast_commit"])
def test_a_real_ext4_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feature: str) -> None:
    monkeypatch.setitem(MAKE, "ext4-feature", ("-O", feature))
    with mounted(tmp_path, "ext4-feature") as mount:
        kinds = kinds_of_events(mount.path / "claims")
    assert kinds == [EventKind.UNRELIABLE_FILE_SYSTEM] * (feature == "fast_commit")


def test_a_dead_owners_journal_is_taken_over_on_pyfakefs_as_well(fs: FakeFilesystem) -> None:
    fs.create_dir("/claims")
    Path("/claims").chmod(0o700)
    left(Path("/claims"), "a.json", blob(put("a", 5)))
    left(Path("/claims"), ".journal", journal_of([put("a", 6)]))
    with reader_of(Path("/claims")) as reader:
        assert seen(reader) == ("6", "5")
    with opened(Path("/claims")) as manager:
        assert seen(manager) == ("6", "5")
