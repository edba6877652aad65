"""Lock files that outlived their process, vanished under it, or were a planted symbolic link."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, DirectoryLocked, DirectoryUnusable, InsecureDirectory
from tests.checkpointmanager.processes import LIMIT, Agent

from .sandboxes import names


@pytest.fixture
def first() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent


@pytest.fixture
def second() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent


@pytest.mark.parametrize("left", ["", "1\n", "{living}", '{{"pid":{living}}}', "\0" * 40])
def test_azure_container_networking_364_a_lock_file_left_behind_locks_nothing(real_directory: Path, left: str) -> None:
    """A crash left the PID file that was the lock, sometimes empty, and all later calls ran into a timeout."""
    real_directory.mkdir(mode=0o700)
    (real_directory / ".lock").write_text(left.format(living=os.getpid()))
    with pytest.raises(FileExistsError):
        os.open(real_directory / ".lock", os.O_CREAT | os.O_EXCL)  # the way that failed

    with CheckpointManager(real_directory, lock_timeout=0) as manager:
        manager.create_checkpoint("endpoint", 1)


def test_azure_container_networking_762_the_lock_dies_with_its_process(real_directory: Path, first: Agent) -> None:
    """The process that held the lock was killed, and no other process could take it any more."""
    first.ask("open", real_directory)
    first.ask("create", "endpoint", 1)
    with pytest.raises(DirectoryLocked, match=f"pid {first.pid}"):
        CheckpointManager(real_directory)

    first.kill()

    with CheckpointManager(real_directory, lock_timeout=0) as manager:
        assert manager.get_checkpoint("endpoint").data == 1


def test_nvidia_374_two_drivers_in_a_rolling_update_lose_no_change(
    real_directory: Path, first: Agent, second: Agent
) -> None:
    """A lock in memory does not keep two processes apart, and in a rolling update there are two of them."""
    for driver in (first, second):
        driver.ask("open", real_directory, sharing=True, lock_timeout=LIMIT)
    first.ask("create", "prepared", 0)

    for driver in (first, second):
        driver.send("count_in_threads", "prepared", 2, 25)
    generations = [generation for driver in (first, second) for generation in driver.answer()]

    assert first.ask("get", "prepared") == 100
    assert sorted(generations) == list(range(2, 102)), "each change was made on top of the one before"


def test_nvidia_378_a_lock_that_is_not_had_in_time_names_its_holder(
    real_directory: Path, first: Agent, second: Agent
) -> None:
    """With a lock around each change a caller may have to wait, and wants to know how long and for which process."""
    first.ask("open", real_directory, sharing=True, owner="driver v1")
    second.ask("open", real_directory, sharing=True, lock_timeout=0.05)
    first.send("stop_before", "rename", "prepared", 1)
    first.wait_until_stopped()  # in the middle of a write

    with pytest.raises(DirectoryLocked, match=r"after waiting 0.05 s .*'driver v1'"):
        second.ask("create", "prepared", 2)

    first.go_on()
    assert first.answer() == 1
    assert second.ask("create", "prepared", 2) == 2


def test_filelock_574_the_lock_file_is_never_unlinked(real_directory: Path) -> None:
    """The lock file was unlinked on release: a waiter on the old inode and the maker of a new one both had it."""
    assert int(version("filelock").split(".")[0]) >= 4
    inodes = set()
    for _ in range(20):
        with CheckpointManager(real_directory):
            inodes.add((real_directory / ".lock").stat().st_ino)
        inodes.add((real_directory / ".lock").stat().st_ino)

    assert len(inodes) == 1


def test_filelock_574_an_owner_that_loses_the_lock_file_stops_writing(real_directory: Path) -> None:
    """Two holders on two inodes both believed that they were alone, and both wrote."""
    with CheckpointManager(real_directory) as old:
        old.create_checkpoint("state", "old")
        (real_directory / ".lock").unlink()
        with CheckpointManager(real_directory) as new:
            new.create_checkpoint("state", "new")

            with pytest.raises(DirectoryLocked, match="removed or replaced"):
                old.create_checkpoint("state", "old again")

            assert new.get_checkpoint("state").data == "new"


@pytest.mark.parametrize("dangling", [False, True])
def test_filelock_461_a_symlink_at_the_lock_path_is_not_followed(real_directory: Path, dangling: bool) -> None:
    """CVE-2025-68146: a symbolic link planted at the lock's path was followed, and its target truncated."""
    target = real_directory.parent / "shadow"
    if not dangling:
        target.write_text("root:*:1::::::\n")
    real_directory.mkdir(mode=0o700)
    (real_directory / ".lock").symlink_to(target)

    with pytest.raises(InsecureDirectory, match="lock"):
        CheckpointManager(real_directory)

    assert target.exists() is not dangling
    assert dangling or target.read_text() == "root:*:1::::::\n"


def test_filelock_465_only_its_owner_can_plant_anything_in_the_directory(real_directory: Path) -> None:
    """CVE-2026-22701, the next of its kind: such attacks need a directory that others can write to."""
    with CheckpointManager(real_directory) as manager:
        manager.create_checkpoint("state", 1)
    assert stat.S_IMODE(real_directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE((real_directory / name).stat().st_mode) for name in names(real_directory)} == {0o600}

    real_directory.chmod(0o777)

    with pytest.raises(InsecureDirectory, match="0777"):
        CheckpointManager(real_directory)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOTSUP])
def test_filelock_603_a_kernel_without_locks_is_an_error_not_a_weaker_lock(real_directory: Path, code: int) -> None:
    """Where the kernel refused the lock, the mere existence of a file silently took its place."""
    with (
        mock.patch.object(fcntl, "flock", side_effect=OSError(code, os.strerror(code))),
        pytest.raises(DirectoryUnusable) as refusal,
    ):
        CheckpointManager(real_directory)

    assert refusal.value.errno == code
