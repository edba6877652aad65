"""How much quarantine keeps, and of which key. Keeping the same bytes again makes no copy and leaks no descriptor."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointError, CheckpointManager, CheckpointWriteFailed

from ..contents import names, quarantined
from ..leases import LEASES, OLD, LeaseManager

KEYS = ("a", "a.b", "a.b.c")  # each is the beginning of the next, with a dot after it


def _damage_and_replace(manager: LeaseManager, directory: Path, key: str, blob: bytes) -> None:
    (directory / f"{key}.json").write_bytes(blob)
    with pytest.raises(CheckpointError):
        manager.get_checkpoint(key)
    manager.create_checkpoint(key, OLD)


def test_each_key_keeps_its_own_newest_four_and_takes_none_of_another(manager: LeaseManager, directory: Path) -> None:
    kept: dict[str, list[bytes]] = {key: [] for key in KEYS}
    for turn in range(7):
        for key in KEYS:
            blob = b"%s damaged %d" % (key.encode(), turn)
            _damage_and_replace(manager, directory, key, blob)
            kept[key] = [*kept[key], blob][-4:]
            assert sorted(quarantined(directory)) == sorted(blob for blobs in kept.values() for blob in blobs)


def test_a_copy_that_cannot_be_pruned_is_no_reason_to_refuse_the_write(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        for turn in range(4):
            _damage_and_replace(manager, real_directory, "a", b"damaged %d" % turn)
        unlink = os.unlink

        def stuck(name: str, *, dir_fd: int | None = None) -> None:
            if name.endswith(".truncated.json"):
                raise OSError(errno.EPERM, "immutable")
            unlink(name, dir_fd=dir_fd)

        with mock.patch.object(os, "unlink", stuck):
            _damage_and_replace(manager, real_directory, "a", b"damaged 4")

        assert manager.get_checkpoint("a").data == OLD
        assert len(quarantined(real_directory)) == 5


def test_an_attempt_that_failed_after_its_copy_was_made_is_not_copied_again(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        (real_directory / "a.json").write_bytes(b"damaged")
        with mock.patch.object(os, "rename", side_effect=OSError(errno.EIO, "I/O error")):
            for _ in range(3):
                with pytest.raises(CheckpointWriteFailed):
                    manager.create_checkpoint("a", OLD)
        assert quarantined(real_directory) == [b"damaged"]

        manager.create_checkpoint("a", OLD)

        assert quarantined(real_directory) == [b"damaged"]


def test_a_link_that_points_to_the_damaged_file_is_no_copy_of_it(real_directory: Path) -> None:
    """It would point to the new file as soon as that exists."""
    with CheckpointManager(real_directory, LEASES) as manager:
        (real_directory / "a.json").write_bytes(b"damaged")
        (real_directory / ".quarantine").mkdir()
        planted = real_directory / ".quarantine" / "a.20200101T000000000000Z.truncated.json"
        planted.symlink_to(real_directory / "a.json")

        manager.create_checkpoint("a", OLD)

        assert b"damaged" in quarantined(real_directory)


def test_a_file_that_cannot_be_opened_is_kept_by_its_name_alone(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        (real_directory / "a.json").write_bytes(b"bad blocks")
        real = os.open

        def unreadable(path: str, flags: int, *more: int, dir_fd: int | None = None) -> int:
            if path == "a.json":
                raise OSError(errno.EIO, "I/O error")
            return real(path, flags, *more, dir_fd=dir_fd)

        with mock.patch.object(os, "open", unreadable):
            manager.create_checkpoint("a", OLD)

        assert quarantined(real_directory) == [b"bad blocks"]
        assert names(real_directory / ".quarantine")[0].endswith(".unreadable.json")


def test_keeping_uses_up_no_descriptors(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        _damage_and_replace(manager, real_directory, "a", b"damaged")
        before = len(os.listdir("/proc/self/fd"))

        for turn in range(5):
            _damage_and_replace(manager, real_directory, "a", b"damaged %d" % turn)

        assert len(os.listdir("/proc/self/fd")) == before
