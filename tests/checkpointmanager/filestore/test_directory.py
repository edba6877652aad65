"""Opening a directory: made private and durable, refused when others could write to it, swept of leftovers."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem
from pyfakefs.helpers import set_uid

from checkpointmanager import CheckpointManager, DirectoryUnusable, Event, EventKind, FileStore, InsecureDirectory
from checkpointmanager._filestore import Durability
from checkpointmanager._filestore.system import file_system_of
from checkpointmanager.testing import Call, failing, watching

from ..contents import names
from ..leases import LEASES, NEW, OLD


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_it_is_made_private_with_its_parents(real_directory: Path) -> None:
    deep = real_directory / "var" / "agent"
    previous = os.umask(0)
    try:
        CheckpointManager(deep, LEASES).close()
    finally:
        os.umask(previous)

    assert [mode_of(path) for path in (real_directory, real_directory / "var", deep)] == [0o700] * 3
    assert mode_of(deep / ".lock") == 0o600


def test_every_new_entry_is_synced_in_its_parent_before_the_next(real_directory: Path) -> None:
    with watching(real_directory.parent) as calls:
        CheckpointManager(real_directory / "b", LEASES).close()

    calls = [call for call in calls if call.name in ("mkdir", "open", "fsync")]
    for made in (real_directory, real_directory / "b"):
        at = calls.index(Call("mkdir", str(made)))
        assert calls[at + 1 : at + 3] == [Call("open", str(made.parent)), Call("fsync", str(made.parent))]


def test_it_is_synced_once_before_anything_is_served(real_directory: Path) -> None:
    CheckpointManager(real_directory, LEASES).close()
    with watching(real_directory.parent) as calls:
        CheckpointManager(real_directory, LEASES).close()

    synced = [call.about for call in calls if call.name == "fsync"]
    assert synced == [str(real_directory.parent), ".", ".lock"], "a file too: see sync_names"


def test_a_parent_that_may_not_be_read_is_passed_through(real_directory: Path) -> None:
    with failing(real_directory.parent, "open", errno.EACCES, about=real_directory.parent.name, lasting=True):
        CheckpointManager(real_directory, LEASES).close()


@pytest.mark.parametrize("stand_in", ["file", "dangling link", "file on the way"])
def test_what_is_no_directory_is_unusable(directory: Path, stand_in: str) -> None:
    if stand_in == "dangling link":
        directory.symlink_to("/nowhere")
    else:
        directory.write_bytes(b"")
    path = directory / "below" if stand_in == "file on the way" else directory

    with pytest.raises(DirectoryUnusable, match=str(path)) as caught:
        CheckpointManager(path, LEASES)
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


def test_a_directory_of_another_user_is_refused_with_the_way_out(directory: Path) -> None:
    set_uid(0)  # in pyfakefs: only root gives directories away
    directory.mkdir(mode=0o700)
    os.chown(directory, 4711, 4711)

    with pytest.raises(InsecureDirectory, match="allow_insecure=True") as caught:
        CheckpointManager(directory, LEASES, read_only=True)
    assert "4711" in str(caught.value)


@pytest.mark.parametrize("owner", [0, 1000], ids=["root", "this user"])
def test_a_directory_of_root_or_of_this_user_is_accepted(fs: FakeFilesystem, owner: int) -> None:
    set_uid(0)
    fs.create_dir("/var/lib/agent")
    os.chown("/var/lib/agent", owner, owner)
    with mock.patch.object(os, "geteuid", return_value=1000):
        CheckpointManager("/var/lib/agent", LEASES).close()


@pytest.mark.parametrize("why", ["mode", "owner"])
def test_an_insecure_directory_is_accepted_on_request(directory: Path, why: str) -> None:
    set_uid(0)
    directory.mkdir()
    if why == "mode":
        directory.chmod(0o777)
    else:
        os.chown(directory, 4711, 4711)

    with CheckpointManager(directory, LEASES, allow_insecure=True) as manager:
        manager.create_checkpoint("a", OLD)
        assert manager.get_checkpoint("a").data == OLD


def test_a_group_writable_directory_is_accepted(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o770)
    CheckpointManager(directory, LEASES).close()


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


def test_a_reader_sweeps_nothing(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    (directory / ".tmp-1").write_bytes(b"of a writer at work")

    with CheckpointManager(directory, LEASES, read_only=True) as manager:
        assert len(manager) == 0
    assert names(directory) == [".tmp-1"]


def test_a_leftover_of_a_killed_process_does_not_disturb_a_sharer(real_directory: Path) -> None:
    """Both count their temp files from one, so their names must differ otherwise."""
    with CheckpointManager(real_directory, LEASES, sharing=True) as manager:
        with watching(real_directory) as calls:
            manager.create_checkpoint("a", OLD)
        (temp,) = {call.about for call in calls if call.name == "open" and call.about.startswith(".tmp-")}
        _, process, number = temp.split("-")
        for ahead in range(1, 5):
            (real_directory / f".tmp-00000000-{int(number) + ahead}").write_bytes(b"left by another")
        assert process != "00000000"
        for lease in (NEW, OLD, NEW):
            manager.create_checkpoint("a", lease)


@pytest.mark.parametrize("durability", ["full", "atomic"])
def test_a_store_can_be_opened_again_after_it_was_closed(directory: Path, durability: Durability) -> None:
    for _ in range(3):
        store = FileStore(directory, durability=durability)
        store.close()
        store.close()


def test_nothing_is_left_open_when_the_lock_cannot_be_given_back(real_directory: Path) -> None:
    store = FileStore(real_directory)
    with mock.patch.object(store._ownership, "close", side_effect=OSError(errno.EIO, "")), pytest.raises(OSError):
        store.close()
    assert store._directory.descriptor == -1
    store._ownership.close()


def test_the_kernel_names_the_file_system(real_directory: Path) -> None:
    """As `stat -f` would; a device that is not mounted has no file system."""
    mounted = {line.split(" - ")[1].split()[0] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    real_directory.mkdir()

    assert file_system_of(os.stat(real_directory).st_dev) in mounted
    assert file_system_of(os.makedev(4095, 4095)) == ""


@pytest.mark.parametrize(("path", "error"), [(5, TypeError), ("claims\0", ValueError)])
def test_an_invalid_path_is_refused_quietly(
    capfd: pytest.CaptureFixture[str], path: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        FileStore(path)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("what", ["list_checkpoints", "load", "verify", "__len__"])
def test_a_directory_that_cannot_be_listed_is_an_error_and_not_an_empty_one(real_directory: Path, what: str) -> None:
    with CheckpointManager(real_directory) as manager:
        manager.create_checkpoint("a", 1)
        with failing(real_directory, "listdir"), pytest.raises(DirectoryUnusable, match="Input/output") as failure:
            getattr(manager, what)()
    assert failure.value.errno == errno.EIO
    assert failure.value.path == str(real_directory)


def test_a_directory_that_cannot_be_listed_cannot_be_opened(real_directory: Path) -> None:
    with failing(real_directory, "listdir"), pytest.raises(DirectoryUnusable, match="Input/output error"):
        CheckpointManager(real_directory)
    CheckpointManager(real_directory).close()  # the failed attempt blocks nothing


@pytest.mark.timeout(20)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_fifo_in_a_directory_s_place_is_refused_and_not_waited_for(tmp_path: Path, read_only: bool) -> None:
    os.mkfifo(tmp_path / "claims")

    with pytest.raises(DirectoryUnusable):
        CheckpointManager(tmp_path / "claims", read_only=read_only)


def test_a_relative_path_is_meant_from_where_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sharing manager takes the lock by path at every write."""
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
