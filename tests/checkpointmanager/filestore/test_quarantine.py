"""Damaged bytes are kept, durably, before anything takes their place; and how much of them is kept, of which key."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    Event,
    EventKind,
)
from checkpointmanager._filestore import quarantine
from checkpointmanager.format import _copies as copies
from checkpointmanager.testing import Call, damage, failing, watching

from ..contents import names, quarantined
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..scenarios import links_refused, ruined

Manager = CheckpointManager[Any]


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


@pytest.mark.parametrize("how", ["create", "remove", "rollback"])
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
        else:
            manager.remove_checkpoint("a")

    assert quarantined(directory) == [damaged]


def test_it_is_synced_before_the_name_is_taken(real_directory: Path) -> None:
    with ruined(real_directory) as manager, watching(real_directory) as calls:
        manager.create_checkpoint("a", NEW)

    made = [str(call) for call in calls]
    kept = [made.index(call) for call in ("fsync .", "fsync a.json", "fsync .quarantine")]
    named = next(place for place, call in enumerate(made) if call.startswith("rename") and call.endswith(" a.json"))
    committed = next(place for place, call in enumerate(made) if call.startswith("fdatasync"))
    assert [*kept, committed, named] == sorted([*kept, committed, named])


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


# What is pruned, whatever the clock says: never the copy that was just made.


@pytest.fixture
def anything(directory: Path) -> Iterator[Manager]:
    with CheckpointManager[Any](directory) as manager:
        yield manager


@contextmanager
def clock(now: Callable[[tzinfo | None], datetime]) -> Iterator[None]:
    class Wrong(datetime):
        @classmethod
        def now(cls, zone: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return now(zone)

    with mock.patch.object(copies, "datetime", Wrong):
        yield


def replaced(anything: Manager, directory: Path, key: str, blob: bytes) -> None:
    """Damage a key and write it anew, so that the damage is in quarantine."""
    (directory / f"{key}.json").write_bytes(blob)
    anything.verify()
    anything.create_checkpoint(key, blob.decode())


@pytest.mark.parametrize("days", [3650, -3650], ids=["ahead", "behind"])
def test_a_clock_that_was_wrong_costs_no_copy_that_has_just_been_made(
    anything: Manager, directory: Path, days: int
) -> None:
    with clock(lambda zone: datetime.now(zone) + timedelta(days=days)):
        for turn in range(4):
            replaced(anything, directory, "a", b"wrong clock %d" % turn)
    for turn in range(3):
        replaced(anything, directory, "a", b"right clock %d" % turn)
        assert b"right clock %d" % turn in quarantined(directory)

    right = [b"right clock 0", b"right clock 1", b"right clock 2"]
    assert sorted(quarantined(directory)) == sorted([*right, b"wrong clock 3"])


def test_with_a_stopped_clock_every_copy_still_gets_a_name_of_its_own(anything: Manager, directory: Path) -> None:
    with clock(lambda zone: datetime(2026, 1, 1, tzinfo=zone)):
        for turn in range(6):
            replaced(anything, directory, "a", b"damaged %d" % turn)

    assert len(quarantined(directory)) == 4
    assert b"damaged 5" in quarantined(directory)


def test_all_keys_together_keep_the_newest(anything: Manager, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "KEPT", 64)
    for number in range(70):
        replaced(anything, directory, f"key-{number}", b"damaged %d" % number)

    assert sorted(quarantined(directory)) == sorted(b"damaged %d" % number for number in range(6, 70))


def test_the_only_copy_of_what_is_gone_is_not_pruned(
    anything: Manager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "KEPT", 4)
    for number in range(10):
        (directory / f"key-{number}.json").write_bytes(b"damaged %d" % number)
        anything.plan_recovery(f"key-{number}").apply(discard=True)

    assert sorted(quarantined(directory)) == sorted(b"damaged %d" % number for number in range(10))


def test_all_keys_together_keep_no_more_bytes_than_the_limit(
    anything: Manager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "KEPT_BYTES", 1000)
    for number in range(5):
        replaced(anything, directory, f"key-{number}", b"%d" % number * 400)
    assert quarantined(directory) == [b"3" * 400, b"4" * 400]

    replaced(anything, directory, "large", b"5" * 4000)
    assert quarantined(directory) == [b"5" * 4000], "the newest copy stays, whatever its size"


def test_the_last_copy_of_what_is_still_damaged_is_not_pruned(
    anything: Manager, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch keeps all its damaged checkpoints before it replaces the first."""
    monkeypatch.setattr(quarantine, "KEPT", 4)
    blobs = [b"damaged %d" % number for number in range(10)]
    for number, blob in enumerate(blobs):
        (directory / f"key-{number}.json").write_bytes(blob)

    with anything.batch() as batch:
        for number in range(10):
            batch.create_checkpoint(f"key-{number}", number)
    assert sorted(quarantined(directory)) == sorted(blobs)

    replaced(anything, directory, "another", b"damaged again")
    assert len(quarantined(directory)) == 4
    assert b"damaged again" in quarantined(directory)


def test_what_is_no_copy_of_ours_is_left_alone(anything: Manager, directory: Path) -> None:
    (directory / ".quarantine").mkdir(mode=0o700)
    (directory / ".quarantine" / "a.by.hand.json").write_bytes(b"an operator's")
    for turn in range(6):
        replaced(anything, directory, "a", b"damaged %d" % turn)

    assert "a.by.hand.json" in names(directory / ".quarantine")
    assert len(quarantined(directory)) == 5


# How much is kept, and of which key.

KEYS = ("a", "a.b", "a.b.c")  # each is the beginning of the next, with a dot after it


def test_each_key_keeps_its_own_newest_four_and_takes_none_of_another(anything: Manager, directory: Path) -> None:
    kept: dict[str, list[bytes]] = {key: [] for key in KEYS}
    for turn in range(7):
        for key in KEYS:
            blob = b"%s damaged %d" % (key.encode(), turn)
            replaced(anything, directory, key, blob)
            kept[key] = [*kept[key], blob][-4:]
            assert sorted(quarantined(directory)) == sorted(blob for blobs in kept.values() for blob in blobs)


def test_a_copy_that_cannot_be_pruned_is_no_reason_to_refuse_the_write(real_directory: Path) -> None:
    with CheckpointManager[Any](real_directory) as manager:
        for turn in range(4):
            replaced(manager, real_directory, "a", b"damaged %d" % turn)
        unlink = os.unlink

        def stuck(name: str, *, dir_fd: int | None = None) -> None:
            if name.endswith(".truncated.json"):
                raise OSError(errno.EPERM, "immutable")
            unlink(name, dir_fd=dir_fd)

        with mock.patch.object(os, "unlink", stuck):
            replaced(manager, real_directory, "a", b"damaged 4")

        assert manager.get_checkpoint("a").data == "damaged 4"
        assert len(quarantined(real_directory)) == 5


def test_an_attempt_that_failed_after_its_copy_was_made_is_not_copied_again(real_directory: Path) -> None:
    with CheckpointManager(real_directory, LEASES) as manager:
        (real_directory / "a.json").write_bytes(b"damaged")
        with mock.patch.object(os, "write", side_effect=OSError(errno.EIO, "I/O error")):
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

        def unreadable(path: str, *arguments: Any, **options: Any) -> int:
            if path == "a.json":
                raise OSError(errno.EIO, "I/O error")
            return real(path, *arguments, **options)

        with mock.patch.object(os, "open", unreadable):
            manager.create_checkpoint("a", OLD)

        assert quarantined(real_directory) == [b"bad blocks"]
        assert names(real_directory / ".quarantine")[0].endswith(".unreadable.json")
