"""`.lock` is removed or replaced under a live owner: it must never go on writing beside another owner."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CheckpointWriteFailed,
    DirectoryLocked,
    DirectoryUnusable,
)

from ..processes import Agent


def _remove(lock: Path) -> None:
    lock.unlink()


def _replace(lock: Path) -> None:
    other = lock.with_name("other")
    other.write_bytes(lock.read_bytes())
    other.rename(lock)


def _rename_away(lock: Path) -> None:
    lock.rename(lock.with_name(".lock.old"))


def _rename_away_and_link(lock: Path) -> None:
    lock.rename(lock.parent.parent / "lock")
    os.link(lock.parent.parent / "lock", lock.with_name(".lock.link"))


def _put_a_link_to_it(lock: Path) -> None:
    lock.rename(lock.with_name(".lock.old"))
    lock.symlink_to(".lock.old")


TAMPERINGS: list[Callable[[Path], None]] = [_remove, _replace, _rename_away, _rename_away_and_link, _put_a_link_to_it]
tamper = pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda act: act.__name__.strip("_"))


@pytest.fixture
def manager(directory: Path) -> Iterator[CheckpointManager[int]]:
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("claim", 1)
        yield manager


@tamper
def test_no_kind_of_write_goes_on_and_reads_still_work(
    manager: CheckpointManager[int], directory: Path, tamper: Callable[[Path], None]
) -> None:
    tamper(directory / ".lock")
    before = (directory / "claim.json").read_bytes()

    def batch() -> None:
        with manager.batch() as batch:
            batch.create_checkpoint("claim", 2)

    for write in (
        lambda: manager.create_checkpoint("claim", 2),
        lambda: manager.create_checkpoint("claim", 1),  # the same value is not "unchanged" either
        lambda: manager.create_checkpoint("new", 2),
        lambda: manager.update_checkpoint("claim", lambda number: number + 1),
        lambda: manager.remove_checkpoint("claim"),
        lambda: manager.recover_checkpoint("claim"),
        batch,
    ):
        with pytest.raises(DirectoryLocked, match=r"removed or replaced.*close and open again"):
            write()
    assert (directory / "claim.json").read_bytes() == before
    assert manager.get_checkpoint("claim").data == 1
    assert manager.list_checkpoints() == ["claim"]
    assert manager.load().checkpoints["claim"].data == 1
    assert manager.verify().intact == 1


@pytest.mark.parametrize("tamper", TAMPERINGS[:2], ids=lambda act: act.__name__.strip("_"))
def test_a_second_process_can_own_it_and_the_first_stays_out_for_good(
    manager: CheckpointManager[int], directory: Path, agent: Agent, tamper: Callable[[Path], None]
) -> None:
    tamper(directory / ".lock")
    with pytest.raises(DirectoryLocked):
        manager.create_checkpoint("claim", 2)

    agent.ask("open", directory, owner="the new one")
    assert agent.ask("create", "claim", "from the new owner") == 2

    with pytest.raises(DirectoryLocked, match="'the new one'"):
        manager.create_checkpoint("claim", 3)
    manager.close()
    with pytest.raises(DirectoryLocked, match=f"pid {agent.pid} "):
        CheckpointManager(directory)
    agent.kill()
    with CheckpointManager(directory) as again:
        assert again.create_checkpoint("claim", 3).generation == 3


def test_a_lock_file_that_is_put_back_does_not_make_the_owner_trust_it_again(
    manager: CheckpointManager[int], directory: Path
) -> None:
    lock = directory / ".lock"
    lock.rename(directory / ".away")
    with pytest.raises(DirectoryLocked):
        manager.create_checkpoint("claim", 2)
    (directory / ".away").rename(lock)
    with pytest.raises(DirectoryLocked):
        manager.create_checkpoint("claim", 2)


def test_a_lock_file_that_cannot_be_looked_at_stops_the_write_but_not_the_next_one(
    manager: CheckpointManager[int], directory: Path
) -> None:
    real = os.stat

    def stat(path: str, **options: Any) -> os.stat_result:
        if path == ".lock":
            raise OSError(errno.EIO, "I/O error")
        return real(path, **options)

    with mock.patch.object(os, "stat", stat), pytest.raises(CheckpointWriteFailed) as refusal:
        manager.create_checkpoint("claim", 2)

    assert (refusal.value.errno, refusal.value.in_doubt) == (errno.EIO, False)
    assert manager.get_checkpoint("claim").data == 1
    assert manager.create_checkpoint("claim", 2).generation == 2


def test_the_directory_itself_is_removed_and_made_anew(
    manager: CheckpointManager[int], directory: Path, agent: Agent
) -> None:
    shutil.rmtree(directory)
    for _ in range(2):
        with pytest.raises(DirectoryLocked):
            manager.create_checkpoint("claim", 2)
    assert not directory.exists()
    with pytest.raises(CheckpointNotFound):
        manager.get_checkpoint("claim")

    agent.ask("open", directory)
    assert agent.ask("create", "claim", "anew") == 1
    with pytest.raises(DirectoryLocked):
        manager.create_checkpoint("claim", 2)


@pytest.mark.parametrize("end", ["removed", "renamed", "replaced"])
def test_a_sharer_whose_directory_is_gone_refuses_and_creates_nothing(directory: Path, end: str) -> None:
    with CheckpointManager(directory, sharing=True) as manager:
        manager.create_checkpoint("claim", 1)
        directory.rename(directory.with_name("away"))
        if end == "removed":
            shutil.rmtree(directory.with_name("away"))
        if end == "replaced":
            directory.mkdir(mode=0o700)
        for _ in range(2):
            with pytest.raises(DirectoryUnusable, match="removed or replaced") as refusal:
                manager.create_checkpoint("claim", 2)
            assert refusal.value.errno == errno.ENOENT
        assert not directory.exists() or not list(directory.iterdir())


@tamper
def test_a_sharer_goes_on_with_the_new_lock_file(directory: Path, tamper: Callable[[Path], None]) -> None:
    with CheckpointManager(directory, sharing=True) as manager:
        manager.create_checkpoint("claim", 1)
        tamper(directory / ".lock")
        if (directory / ".lock").is_symlink():
            (directory / ".lock").unlink()
        assert manager.create_checkpoint("claim", 2).generation == 2
