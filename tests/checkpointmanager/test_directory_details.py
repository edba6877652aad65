"""A directory that is there, but cannot be listed, or is something else: told at once, and as one of our errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, DirectoryUnusable


@pytest.mark.parametrize("what", ["list_checkpoints", "load", "verify", "__len__"])
def test_a_directory_that_cannot_be_listed_is_an_error_and_not_an_empty_one(real_directory: Path, what: str) -> None:
    with CheckpointManager(real_directory) as manager:
        manager.create_checkpoint("a", 1)
        with (
            mock.patch.object(os, "listdir", side_effect=OSError(errno.EIO, "I/O error")),
            pytest.raises(DirectoryUnusable, match="I/O error") as failure,
        ):
            getattr(manager, what)()
    assert failure.value.errno == errno.EIO
    assert failure.value.path == str(real_directory)


def test_a_directory_that_cannot_be_listed_cannot_be_opened(real_directory: Path) -> None:
    with (
        mock.patch.object(os, "listdir", side_effect=OSError(errno.EIO, "I/O error")),
        pytest.raises(DirectoryUnusable, match="I/O error"),
    ):
        CheckpointManager(real_directory)
    CheckpointManager(real_directory).close()  # nothing of the attempt is in the way


@pytest.mark.timeout(20)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_fifo_in_a_directory_s_place_is_refused_and_not_waited_for(tmp_path: Path, read_only: bool) -> None:
    os.mkfifo(tmp_path / "claims")

    with pytest.raises(DirectoryUnusable):
        CheckpointManager(tmp_path / "claims", read_only=read_only)


def test_a_refused_directory_leaves_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    before = os.listdir("/proc/self/fd")

    for name in ("file", "open", "missing"):
        with pytest.raises(Exception, match=name) as refusal:
            CheckpointManager(tmp_path / name, read_only=True)
        del refusal

    assert len(os.listdir("/proc/self/fd")) == len(before)
