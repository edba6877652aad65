"""Which file systems are reported when a directory is opened on them, and what they may lack without harm."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import CheckpointManager, DirectoryUnusable, Event, EventKind
from checkpointmanager._filestore.system import has_fast_commit, is_unreliable

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


@pytest.mark.parametrize(
    "kind",
    [
        *("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "gpfs", "virtiofs", "vboxsf"),
        *("fuse", "fuseblk", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs"),
    ],
)
def test_a_file_system_over_a_network_or_a_program_is_reported(directory: Path, kind: str) -> None:
    events: list[Event] = []
    with mock.patch("checkpointmanager._filestore.directory.file_system_of", return_value=kind):
        CheckpointManager[Any](directory, on_event=events.append).close()
    assert [event.kind for event in events] == [EventKind.UNRELIABLE_FILE_SYSTEM]


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "f2fs", "zfs", "fusectl", ""])
def test_local_disks_are_not(kind: str) -> None:
    assert not is_unreliable(kind)


@pytest.mark.parametrize(
    ("options", "expected"),
    [("rw\nfast_commit\n", True), ("rw\nfc_debug_force\n", True), ("rw\ndata=ordered\n", False)],
)
def test_ext4_with_fast_commit_is_reported(fs: FakeFilesystem, options: str, expected: bool) -> None:
    fs.create_dir("/var/lib")
    device = os.stat("/var/lib").st_dev
    fs.create_symlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}", "../../devices/virtual/block/dm-7")
    fs.create_file("/proc/fs/ext4/dm-7/options", contents=options)
    events: list[Event] = []
    with mock.patch("checkpointmanager._filestore.directory.file_system_of", return_value="ext4"):
        CheckpointManager[Any]("/var/lib/claims", on_event=events.append).close()
    assert [event.kind for event in events] == [EventKind.UNRELIABLE_FILE_SYSTEM] * expected
    assert all("tune2fs -O ^fast_commit" in event.detail for event in events)


def test_a_real_ext4_shows_it(tmp_path: Path) -> None:
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    mounted.mkdir()
    for feature, expected in (("fast_commit", True), ("^fast_commit", False)):
        with image.open("wb") as file:
            file.truncate(32 << 20)
        try:
            subprocess.run(["mkfs.ext4", "-q", "-F", "-O", feature, str(image)], check=True, capture_output=True)
            subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"needs root, mkfs.ext4 with fast_commit and loop mounts: {error}")
        try:
            assert has_fast_commit(mounted.stat().st_dev) is expected
        finally:
            subprocess.run(["umount", str(mounted)], check=True)
