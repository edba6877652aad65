"""Damaged bytes are kept, durably, before anything takes their place."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, CheckpointWriteFailed, CorruptCheckpoint, Event, EventKind
from checkpointmanager.testing import Call, damage, failing, watching

from ..contents import names, quarantined
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..scenarios import links_refused, ruined


def test_a_damaged_file_stays_under_its_name_however_often_it_is_read(manager: LeaseManager, directory: Path) -> None:
    manager.create_checkpoint("a", OLD)
    damage.flip_bit(directory, "a")
    damaged = (directory / "a.json").read_bytes()

    for _ in range(3):
        with pytest.raises(CorruptCheckpoint, match="the bytes are untouched"):
            manager.get_checkpoint("a")
    manager.load()
    manager.verify()

    assert (directory / "a.json").read_bytes() == damaged
    assert quarantined(directory) == []


def test_the_name_states_key_time_and_reason(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        (directory / "pod.7.json").write_bytes(b"")
        manager.create_checkpoint("pod.7", NEW)

    (name,) = names(directory / ".quarantine")
    assert name.startswith("pod.7.2")
    assert name.endswith("Z.empty.json")
    assert os.stat(directory / ".quarantine").st_mode & 0o777 == 0o700


@pytest.mark.parametrize("how", ["create", "remove", "batch create", "batch remove", "rollback"])
def test_the_bytes_are_kept_whatever_replaces_them(directory: Path, how: str) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
        manager.create_checkpoint("a", NEW)
    damage.ruin(directory, "a")
    damaged = (directory / "a.json").read_bytes()

    with CheckpointManager(directory, LEASES) as manager:
        if how == "rollback":
            manager.recover_checkpoint("a", rollback=True)
        elif how == "create":
            manager.create_checkpoint("a", Lease("third"))
        elif how == "remove":
            manager.remove_checkpoint("a")
        else:
            with manager.batch() as batch:
                if how == "batch create":
                    batch.create_checkpoint("a", Lease("third"))
                else:
                    batch.remove_checkpoint("a")

    assert quarantined(directory) == [damaged]


def test_the_newest_four_of_a_key_are_kept(manager: LeaseManager, directory: Path) -> None:
    for n in range(7):
        (directory / "a.json").write_bytes(b"damaged %d" % n)
        with pytest.raises(CorruptCheckpoint):
            manager.get_checkpoint("a")
        manager.create_checkpoint("a", OLD)
    (directory / "b.json").write_bytes(b"another key")
    manager.create_checkpoint("b", OLD)

    assert quarantined(directory) == [b"damaged %d" % n for n in (3, 4, 5, 6)] + [b"another key"]


def test_it_is_synced_before_the_name_is_taken(real_directory: Path) -> None:
    with ruined(real_directory) as manager, watching(real_directory) as calls:
        manager.create_checkpoint("a", NEW)

    done = [str(call).partition("-")[0] for call in calls if call.name in ("fsync", "rename")]
    kept = ["fsync .", "fsync a.json", "fsync .quarantine"]
    assert done == [*kept, "fsync .tmp", "rename .tmp", "fsync ."]
    assert [call.about.split()[1] for call in calls if call.name == "rename"] == ["a.json"]


def test_a_folder_whose_name_could_not_be_synced_is_made_anew(real_directory: Path) -> None:
    """Another sync would succeed, and the name would be lost all the same."""
    with ruined(real_directory) as manager:
        with failing(real_directory, "fsync", lasting=True), pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", NEW)
        assert not (real_directory / ".quarantine").exists()
        with watching(real_directory) as calls:
            manager.create_checkpoint("a", NEW)

    made = next(place for place, call in enumerate(calls) if call.name == "mkdir")
    assert calls[made + 1] == Call("fsync", ".")


def test_where_links_are_refused_it_is_a_copy(real_directory: Path) -> None:
    with ruined(real_directory) as manager:
        damaged = (real_directory / "a.json").read_bytes()
        with links_refused(real_directory):
            manager.create_checkpoint("a", NEW)

    assert quarantined(real_directory) == [damaged]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
def test_a_copy_that_fails_leaves_no_half_copy(real_directory: Path, error: BaseException) -> None:
    with ruined(real_directory) as manager:
        ended = failing(real_directory, "write", error)
        with links_refused(real_directory), ended, pytest.raises((CheckpointWriteFailed, KeyboardInterrupt)):
            manager.create_checkpoint("a", NEW)
    assert quarantined(real_directory) == []


def test_a_copy_that_fails_is_reported_as_such_even_if_half_of_it_is_stuck(real_directory: Path) -> None:
    with ruined(real_directory) as manager:
        full = mock.patch.object(os, "write", side_effect=OSError(errno.ENOSPC, "full"))
        stuck = mock.patch.object(os, "unlink", side_effect=OSError(errno.EPERM, "immutable"))
        with links_refused(real_directory), full, stuck, pytest.raises(CheckpointWriteFailed) as caught:
            manager.create_checkpoint("a", NEW)
    assert caught.value.errno == errno.ENOSPC


def test_an_unreadable_file_is_not_replaced_where_it_could_only_be_copied(real_directory: Path) -> None:
    with ruined(real_directory) as manager:
        damaged = (real_directory / "a.json").read_bytes()
        bad_block = mock.patch.object(os, "read", side_effect=OSError(errno.EIO, "bad block"))
        with links_refused(real_directory), bad_block, pytest.raises(CheckpointWriteFailed) as caught:
            manager.create_checkpoint("a", NEW)

    assert (caught.value.errno, caught.value.in_doubt) == (errno.EIO, False)
    assert (real_directory / "a.json").read_bytes() == damaged


def test_without_a_copy_nothing_is_written(real_directory: Path) -> None:
    with ruined(real_directory) as manager:
        damaged = (real_directory / "a.json").read_bytes()
        with mock.patch.object(os, "link", side_effect=OSError(errno.ENOSPC, "full")):
            for write in (
                lambda: manager.create_checkpoint("a", NEW),
                lambda: manager.recover_checkpoint("a", rollback=True),
            ):
                with pytest.raises(CheckpointWriteFailed) as caught:
                    write()
                assert (caught.value.errno, caught.value.in_doubt) == (errno.ENOSPC, False)
        assert (real_directory / "a.json").read_bytes() == damaged


def test_a_removal_is_possible_without_a_copy_and_is_reported(real_directory: Path) -> None:
    events: list[Event] = []
    ruined(real_directory).close()
    (real_directory / ".quarantine").write_bytes(b"a file where the folder belongs")

    with CheckpointManager(real_directory, LEASES, on_event=events.append) as manager:
        manager.remove_checkpoint("a")
        assert "a" not in manager

    assert [event.kind for event in events] == [EventKind.DAMAGE, EventKind.NOT_QUARANTINED]
    assert events[1].key == "a"


def test_an_unreadable_file_is_kept_as_it_is(real_directory: Path) -> None:
    """Nothing has to be read for a link: a file with bad blocks can be kept and replaced."""
    with ruined(real_directory) as manager:
        damaged = (real_directory / "a.json").read_bytes()
        with mock.patch.object(os, "read", side_effect=OSError(errno.EIO, "bad block")):
            manager.create_checkpoint("a", NEW)
        assert manager.get_checkpoint("a").data == NEW
    assert quarantined(real_directory) == [damaged]


def test_a_file_too_large_to_read_is_kept_as_it_is(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", Lease("x" * 5000))
    large = (directory / "a.json").read_bytes()

    with CheckpointManager(directory, LEASES, max_bytes=1000) as manager:
        manager.create_checkpoint("a", NEW)
        assert manager.get_checkpoint("a").data == NEW
    assert quarantined(directory) == [large]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_is_not_taken_for_damage_when_writing(real_directory: Path, number: int) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        manager.create_checkpoint("a", OLD)
    with CheckpointManager(real_directory, LEASES) as manager:
        with (
            mock.patch.object(os, "fstat", side_effect=OSError(number, os.strerror(number))),
            pytest.raises(CheckpointWriteFailed) as caught,
        ):
            manager.create_checkpoint("a", NEW)
        assert (caught.value.errno, caught.value.in_doubt) == (number, False)
        assert manager.get_checkpoint("a").data == OLD
    assert quarantined(real_directory) == []
