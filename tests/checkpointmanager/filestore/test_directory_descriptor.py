"""The descriptor of a directory: closed once, whatever happens, and never mistaken for another."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointError, CheckpointManager, DirectoryUnusable
from checkpointmanager._filestore.directory import Directory

from ..processes import in_forked_child, open_descriptors


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


@pytest.mark.parametrize("why", ["insecure", "no status"])
def test_a_refused_directory_is_let_go_while_its_error_is_kept(tmp_path: Path, why: str) -> None:
    tmp_path.chmod(0o777 if why == "insecure" else 0o700)
    broken = mock.patch.object(os, "fstat", side_effect=OSError(errno.EIO, "I/O error"))
    before = open_descriptors()

    with broken if why == "no status" else nullcontext(), pytest.raises(CheckpointError) as refusal:
        CheckpointManager(tmp_path, read_only=True)

    assert refusal.value.__traceback__ is not None  # it holds the frames, and all that is in them
    assert open_descriptors() == before


def test_a_directory_is_closed_once_and_what_was_never_opened_not_at_all(tmp_path: Path) -> None:
    with mock.patch.object(os, "close", wraps=os.close) as close:
        with pytest.raises(DirectoryUnusable):
            Directory(tmp_path / "missing", create=False, allow_insecure=False)
        assert close.mock_calls == []

        directory = Directory(tmp_path, create=False, allow_insecure=False)
        number = directory.descriptor
        directory.close()
        directory.close()
        del directory
    assert close.mock_calls == [mock.call(number)]


def test_a_directory_that_got_the_number_of_a_closed_standard_input_is_closed_too(tmp_path: Path) -> None:
    def in_child() -> tuple[int, bool]:
        os.close(0)
        directory = Directory(tmp_path, create=False, allow_insecure=False)
        number = directory.descriptor
        directory.close()
        return number, os.path.exists(f"/proc/self/fd/{number}")

    assert in_forked_child(in_child) == (0, False)


def test_an_error_of_closing_it_does_not_reach_the_caller(tmp_path: Path) -> None:
    """Nothing was written through it."""
    close = os.close

    def complain(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, "I/O error")

    with mock.patch.object(os, "close", complain):
        Directory(tmp_path, create=False, allow_insecure=False).close()


def test_a_closed_directory_is_never_taken_for_the_working_directory(real_directory: Path) -> None:
    directory = Directory(real_directory, create=True, allow_insecure=False)
    directory.close()
    with pytest.raises(DirectoryUnusable, match="Bad file descriptor"):
        directory.names()
