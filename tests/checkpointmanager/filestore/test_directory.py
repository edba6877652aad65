"""Opening a directory: made private and durable, refused when others could write to it, swept of leftovers."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import (
    CheckpointError,
    CheckpointManager,
    DirectoryUnusable,
    Event,
    EventKind,
    FileStore,
    InsecureDirectory,
)
from checkpointmanager.testing import Call, failing, watching

from ..contents import names
from ..leases import LEASES, NEW, OLD
from ..processes import in_forked_child, open_descriptors

pytestmark = pytest.mark.usefixtures("kit_standing_by")


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_it_is_made_private_with_its_parents(directory: Path) -> None:
    deep = directory / "var" / "agent"
    previous = os.umask(0)
    try:
        CheckpointManager(deep, LEASES).close()
    finally:
        os.umask(previous)

    assert [mode_of(path) for path in (directory, directory / "var", deep)] == [0o700] * 3
    assert mode_of(deep / ".lock") == 0o600


def test_every_new_entry_is_synced_in_its_parent_before_the_next(directory: Path) -> None:
    with watching(directory.parent) as calls:
        CheckpointManager(directory / "b", LEASES).close()

    calls = [call for call in calls if call.name in ("mkdir", "open", "fsync")]
    for made in (directory, directory / "b"):
        at = calls.index(Call("mkdir", str(made)))
        assert calls[at + 1 : at + 3] == [Call("open", str(made.parent)), Call("fsync", str(made.parent))]


def test_a_parent_that_may_not_be_read_is_passed_through(directory: Path) -> None:
    with failing(directory.parent, "open", errno.EACCES, about=directory.parent.name, lasting=True):
        CheckpointManager(directory, LEASES).close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("stand_in", ["file", "fifo", "dangling link", "file on the way"])
def test_what_is_no_directory_is_unusable_and_not_waited_for(directory: Path, stand_in: str, read_only: bool) -> None:
    if stand_in == "dangling link":
        directory.symlink_to("/nowhere")
    elif stand_in == "fifo":
        os.mkfifo(directory)
    else:
        directory.write_bytes(b"")
    path = directory / "below" if stand_in == "file on the way" else directory

    with pytest.raises(DirectoryUnusable, match=str(path)) as caught:
        CheckpointManager(path, LEASES, read_only=read_only)
    assert isinstance(caught.value, OSError)
    assert caught.value.errno in (errno.ENOTDIR, errno.ENOENT, errno.EEXIST)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_directory_that_all_may_write_to_is_refused_with_the_way_out(directory: Path, mode: int) -> None:
    directory.mkdir()
    directory.chmod(mode)

    with pytest.raises(InsecureDirectory, match="allow_insecure=True") as caught:
        CheckpointManager(directory, LEASES)
    assert f"{mode:04o}" in str(caught.value)
    assert names(directory) == []
    CheckpointManager(directory, LEASES, allow_insecure=True).close()


def test_files_of_dead_writers_are_swept(directory: Path) -> None:
    events: list[Event] = []
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
    for name in (".tmp-1", ".tmp-0badcafe-12"):
        (directory / name).write_bytes(b"unfinished")
    (directory / ".hidden").write_bytes(b"not ours")

    with CheckpointManager(directory, LEASES, on_event=events.append) as manager:
        assert names(directory) == [".hidden", ".lock", ".previous-a", "a.json"]
        assert manager.get_checkpoint("a").data == NEW
    assert [event.kind for event in events] == [EventKind.STALE_FILES]
    assert "removed 2 unfinished files" in events[0].detail


def test_a_leftover_of_a_killed_process_does_not_disturb_a_sharer(directory: Path) -> None:
    """Both count their temp files from one, so their names must differ otherwise."""
    with CheckpointManager(directory, LEASES, sharing=True) as manager:
        with watching(directory) as calls:
            manager.create_checkpoint("a", OLD)
        (temp,) = {call.about for call in calls if call.name == "open" and call.about.startswith(".tmp-")}
        _, process, number = temp.split("-")
        for ahead in range(1, 5):
            (directory / f".tmp-00000000-{int(number) + ahead}").write_bytes(b"left by another")
        assert process != "00000000"
        for lease in (NEW, OLD, NEW):
            manager.create_checkpoint("a", lease)


@pytest.mark.parametrize(("path", "error"), [(5, TypeError), ("claims\0", ValueError)])
def test_an_invalid_path_is_refused_quietly(
    capfd: pytest.CaptureFixture[str], path: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        FileStore(path)
    assert capfd.readouterr().err == ""


def test_an_open_that_cannot_list_the_directory_is_refused_and_blocks_nothing(directory: Path) -> None:
    with failing(directory, "listdir"), pytest.raises(DirectoryUnusable, match="Input/output error"):
        CheckpointManager(directory)
    CheckpointManager(directory).close()


def test_a_relative_path_is_meant_from_where_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sharing manager takes the lock by path at every write."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with CheckpointManager("claims", sharing=True) as manager:
        monkeypatch.chdir("elsewhere")
        manager.create_checkpoint("a", 1)

    assert (tmp_path / "claims" / "a.json").exists()
    assert os.listdir(tmp_path / "elsewhere") == []


def test_processes_that_make_it_at_the_same_time_are_not_in_each_other_s_way(directory: Path) -> None:
    mkdir = os.mkdir

    def come_second(path: str, mode: int) -> None:
        mkdir(path, mode)
        mkdir(path, mode)

    with mock.patch.object(os, "mkdir", come_second):
        CheckpointManager(directory / "below").close()


# The descriptor: closed once, and never mistaken for another.


@pytest.mark.parametrize("why", ["a file", "insecure", "missing", "no status"])
def test_a_refused_directory_is_let_go_while_its_error_is_kept(directory: Path, why: str) -> None:
    if why == "a file":
        directory.touch()
    elif why != "missing":
        directory.mkdir()
        directory.chmod(0o777 if why == "insecure" else 0o700)
    broken = mock.patch.object(os, "fstat", side_effect=OSError(errno.EIO, "I/O error"))
    before = open_descriptors()

    with broken if why == "no status" else nullcontext(), pytest.raises(CheckpointError) as refusal:
        CheckpointManager(directory, read_only=True)

    assert refusal.value.__traceback__ is not None  # it holds the frames, and all that is in them
    assert open_descriptors() == before


@pytest.mark.parametrize("complains", [False, True], ids=["closed", "closed with an error"])
def test_every_descriptor_is_closed_once_and_an_error_of_that_reaches_nobody(directory: Path, complains: bool) -> None:
    """Nothing was written through it."""
    CheckpointManager(directory).close()
    closed: list[int] = []
    close = os.close

    def count(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)
        if complains:
            raise OSError(errno.EIO, "I/O error")

    before = open_descriptors()
    with mock.patch.object(os, "close", count):
        manager: CheckpointManager[Any] = CheckpointManager(directory, read_only=True)
        of_the_opening = len(closed)
        manager.close()
        manager.close()
        del manager
    assert len(closed) - of_the_opening == len({*closed[of_the_opening:]}) > 0
    assert open_descriptors() == before


def test_a_directory_that_got_the_number_of_a_closed_standard_input_is_closed_too(directory: Path) -> None:
    CheckpointManager(directory).close()

    def in_child() -> tuple[bool, bool]:
        os.close(0)
        manager: CheckpointManager[Any] = CheckpointManager(directory, read_only=True)
        used = os.path.exists("/proc/self/fd/0")
        manager.close()
        return used, os.path.exists("/proc/self/fd/0")

    assert in_forked_child(in_child) == (True, False)
