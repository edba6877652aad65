"""A foreign entry under the name of one of our files is never followed, never waited for, and never trusted."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    InsecureDirectory,
    Outcome,
    Reason,
)
from checkpointmanager.testing import watching

from ..contents import names
from ..leases import LEASES, NEW, OLD, Lease

pytestmark = pytest.mark.usefixtures("kit_standing_by")

SECRET = b"the target must stay as it is"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.write_bytes(SECRET)
    return path


def symlink(path: Path, target: Path) -> None:
    path.symlink_to(target)


def dangling(path: Path, target: Path) -> None:
    path.symlink_to(target.with_name("nothing"))


def loop(path: Path, _: Path) -> None:
    path.symlink_to(path.name)


def fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket must be short
        try:
            listening.bind(path.name)
        finally:
            os.chdir(here)


def folder(path: Path, _: Path) -> None:
    path.mkdir()


STAND_INS: list[Callable[[Path, Path], None]] = [symlink, dangling, loop, fifo, bound_socket, folder]
REPLACEABLE = [stand_in for stand_in in STAND_INS if stand_in is not folder]
by_stand_in = pytest.mark.parametrize("put", STAND_INS)


def untouched(target: Path) -> bool:
    return target.read_bytes() == SECRET and not target.with_name("nothing").exists()


@by_stand_in
def test_a_checkpoint_is_not_read_through_it(directory: Path, target: Path, put: Callable[[Path, Path], None]) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("good", OLD)
        put(directory / "a.json", target)

        assert "a" in manager
        with pytest.raises(CorruptCheckpoint) as caught:
            manager.get_checkpoint("a")
        assert caught.value.reason is Reason.NOT_A_FILE
        assert manager.load().problems.keys() == {"a"}
        assert manager.verify().intact == 1
        assert manager.recover_checkpoint("a").outcome is Outcome.HOPELESS
    assert untouched(target)


def test_a_link_to_a_good_checkpoint_is_not_followed_either(directory: Path, tmp_path: Path) -> None:
    with CheckpointManager(tmp_path / "elsewhere", LEASES) as manager:
        manager.create_checkpoint("a", OLD)
    with CheckpointManager(directory, LEASES) as manager:
        (directory / "a.json").symlink_to(tmp_path / "elsewhere" / "a.json")
        with pytest.raises(CorruptCheckpoint):
            manager.get_checkpoint("a")


@by_stand_in
def test_a_write_and_a_removal_refuse_it_until_it_is_moved_away(
    directory: Path, target: Path, put: Callable[[Path, Path], None]
) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        put(directory / "a.json", target)
        before = os.lstat(directory / "a.json")
        changes: list[Callable[[], object]] = [
            lambda: manager.create_checkpoint("a", NEW),
            lambda: manager.remove_checkpoint("a"),
        ]
        for change in changes:
            with pytest.raises(CheckpointWriteFailed, match="move it away") as caught:
                change()
            assert (caught.value.errno, caught.value.in_doubt) == (errno.EISDIR, False)
        assert os.path.samestat(os.lstat(directory / "a.json"), before)
        assert names(directory, ".tmp-") == []

        os.rename(directory / "a.json", directory.parent / "away")
        manager.create_checkpoint("a", NEW)
        assert manager.get_checkpoint("a").data == NEW
    assert untouched(target)


@pytest.mark.parametrize("put", REPLACEABLE)
def test_a_write_by_an_owner_that_knows_the_key_replaces_it_and_not_its_target(
    directory: Path, target: Path, put: Callable[[Path, Path], None]
) -> None:
    """It does not look at the file again."""
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        (directory / "a.json").unlink()
        put(directory / "a.json", target)

        manager.create_checkpoint("a", NEW)

        assert manager.get_checkpoint("a").data == NEW
        assert (directory / "a.json").is_file()
        assert not (directory / "a.json").is_symlink()
        manager.create_checkpoint("a", Lease("third"))
        assert names(directory, ".tmp-") == []
    assert untouched(target)


@by_stand_in
def test_a_lock_that_is_no_file_is_refused(directory: Path, target: Path, put: Callable[[Path, Path], None]) -> None:
    directory.mkdir(mode=0o700)
    put(directory / ".lock", target)

    with pytest.raises(InsecureDirectory, match="where the lock file belongs"):
        CheckpointManager(directory, LEASES)
    assert untouched(target)


@by_stand_in
def test_a_previous_generation_is_not_read_through_it(
    directory: Path, target: Path, put: Callable[[Path, Path], None]
) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        put(directory / ".previous-a", target)
        assert manager.previous_checkpoint("a") is None
        (directory / "a.json").write_bytes(b"")
        assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.HOPELESS
    assert untouched(target)


@pytest.mark.parametrize("put", REPLACEABLE)
def test_a_previous_generation_replaces_it(directory: Path, target: Path, put: Callable[[Path, Path], None]) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        put(directory / ".previous-a", target)
        manager.create_checkpoint("a", NEW)
        previous = manager.previous_checkpoint("a")
    assert previous is not None
    assert previous.data == OLD
    assert untouched(target)


@pytest.mark.parametrize("put", [symlink, dangling, loop, fifo, bound_socket])
def test_a_quarantine_that_is_no_folder_is_not_used(
    directory: Path, target: Path, put: Callable[[Path, Path], None]
) -> None:
    elsewhere = target.parent / "elsewhere"
    elsewhere.mkdir()
    with CheckpointManager(directory, LEASES) as manager:
        if put is symlink:
            (directory / ".quarantine").symlink_to(elsewhere)
        else:
            put(directory / ".quarantine", target)
        (directory / "a.json").write_bytes(b"damaged")

        with pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", NEW)
        assert (directory / "a.json").read_bytes() == b"damaged"
    assert names(elsewhere) == []
    assert untouched(target)


@pytest.mark.parametrize("put", REPLACEABLE)
def test_a_temp_name_that_is_no_file_is_swept_and_not_its_target(
    directory: Path, target: Path, put: Callable[[Path, Path], None]
) -> None:
    directory.mkdir(mode=0o700)
    put(directory / ".tmp-planted", target)
    with CheckpointManager(directory, LEASES) as manager:
        assert names(directory) == [".lock"]
        manager.create_checkpoint("a", NEW)
    assert untouched(target)


@by_stand_in
def test_a_planted_temp_name_costs_at_most_one_write(
    directory: Path, target: Path, put: Callable[[Path, Path], None]
) -> None:
    """An attacker guesses the next name: the write that meets it fails, and the next one has another name."""
    with CheckpointManager(directory, LEASES) as manager:
        with watching(directory) as calls:
            manager.create_checkpoint("a", OLD)
        last = max(int(call.about.split("-")[-1]) for call in calls if call.name == "open" and ".tmp-" in call.about)
        process = next(call.about for call in calls if ".tmp-" in call.about).split("-")[1]
        put(directory / f".tmp-{process}-{last + 1}", target)
        with pytest.raises(CheckpointWriteFailed, match="exists"):
            manager.create_checkpoint("a", NEW)
        manager.create_checkpoint("a", NEW)
        assert manager.get_checkpoint("a").data == NEW
    assert untouched(target)


def test_a_directory_that_is_moved_while_it_is_open_is_still_the_one(directory: Path, tmp_path: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        directory.rename(tmp_path / "moved")
        directory.mkdir()
        manager.create_checkpoint("a", OLD)
        assert manager.get_checkpoint("a").data == OLD
    assert names(directory) == []
    assert names(tmp_path / "moved") == [".lock", "a.json"]
