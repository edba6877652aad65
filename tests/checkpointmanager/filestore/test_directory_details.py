"""A directory that cannot be made, synced or listed, or is something else: told at once; and its descriptor."""

from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointError, CheckpointManager, DirectoryUnusable
from checkpointmanager._filestore.directory import Directory

from ..faults import open_descriptors
from ..processes import in_forked_child


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


@pytest.mark.parametrize("why", ["insecure", "no status"])
def test_a_refused_directory_is_let_go_while_its_error_is_kept(tmp_path: Path, why: str) -> None:
    tmp_path.chmod(0o777 if why == "insecure" else 0o700)
    broken = mock.patch.object(os, "fstat", side_effect=OSError(errno.EIO, "I/O error"))
    before = open_descriptors()

    with broken if why == "no status" else nullcontext(), pytest.raises(CheckpointError) as refusal:
        CheckpointManager(tmp_path, read_only=True)

    assert refusal.value.__traceback__ is not None  # it has the frames, and all that is in them
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


def test_an_error_of_closing_it_is_none_of_the_caller_s(tmp_path: Path) -> None:
    """Nothing was written through it."""
    close = os.close

    def complain(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, "I/O error")

    with mock.patch.object(os, "close", complain):
        Directory(tmp_path, create=False, allow_insecure=False).close()


def test_a_relative_path_is_meant_from_where_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is taken by path at every write of one that shares."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with CheckpointManager("claims", sharing=True) as manager:
        monkeypatch.chdir("elsewhere")
        manager.create_checkpoint("a", 1)

    assert (tmp_path / "claims" / "a.json").exists()
    assert os.listdir(tmp_path / "elsewhere") == []


def test_processes_that_make_it_at_the_same_time_are_not_in_each_other_s_way(real_directory: Path) -> None:
    mkdir = os.mkdir

    def come_second(path: str, mode: int) -> None:
        mkdir(path, mode)
        mkdir(path, mode)

    with mock.patch.object(os, "mkdir", come_second):
        CheckpointManager(real_directory / "below").close()


def test_a_closed_directory_is_never_taken_for_the_working_directory(real_directory: Path) -> None:
    directory = Directory(real_directory, create=True, allow_insecure=False)
    directory.close()
    with pytest.raises(DirectoryUnusable, match="Bad file descriptor"):
        directory.names()


def outcomes_of_syncs_that_wait_for_one(directory: Directory, then: list[BaseException | None]) -> list[Any]:
    """What three threads get that come while a sync runs; `then` has what the kernel says to each further one."""
    running, go_on = threading.Event(), threading.Event()
    answers = iter(then)

    def fsync(_: int) -> None:
        if not running.is_set():
            running.set()
            assert go_on.wait(20)
        elif answer := next(answers):
            raise answer

    with mock.patch.object(os, "fsync", fsync), ThreadPoolExecutor(4) as pool:
        first = pool.submit(directory.sync)
        assert running.wait(20)
        others = [pool.submit(directory.sync) for _ in range(3)]
        time.sleep(0.1)  # until they wait
        go_on.set()
        first.result(20)
        outcomes = [other.exception(20) for other in others]
    assert list(answers) == [], "not one sync more than that"
    return sorted(type(outcome).__name__ for outcome in outcomes)


def test_one_sync_serves_all_who_waited(real_directory: Path) -> None:
    directory = Directory(real_directory, create=True, allow_insecure=False)
    assert outcomes_of_syncs_that_wait_for_one(directory, [None]) == ["NoneType"] * 3
    directory.close()


def test_a_failed_sync_is_told_to_all_who_waited_for_it(real_directory: Path) -> None:
    directory = Directory(real_directory, create=True, allow_insecure=False)
    failure = OSError(errno.EIO, "Input/output error")
    assert outcomes_of_syncs_that_wait_for_one(directory, [failure]) == ["OSError"] * 3
    directory.sync()
    directory.close()


def test_a_sync_that_was_interrupted_serves_nobody(real_directory: Path) -> None:
    directory = Directory(real_directory, create=True, allow_insecure=False)
    outcomes = outcomes_of_syncs_that_wait_for_one(directory, [KeyboardInterrupt(), None])
    assert outcomes == ["KeyboardInterrupt", "NoneType", "NoneType"]
    directory.close()
