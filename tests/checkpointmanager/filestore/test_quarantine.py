"""Damaged bytes are kept, durably, before anything takes their place; and how much of them is kept, of which key."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
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
    FileStore,
    Reason,
)
from checkpointmanager.format import KEPT, KEPT_BYTES, KEPT_PER_KEY, KEPT_RETIRED, RETIRED
from checkpointmanager.testing import Call, damage, failing, watching

from ..contents import names, quarantined
from ..leases import LEASES, NEW, OLD, Lease, LeaseManager
from ..scenarios import links_refused, ruined

pytestmark = pytest.mark.usefixtures("kit_standing_by")

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


REPLACEMENTS: dict[str, Callable[[LeaseManager], object]] = {
    "create": lambda manager: manager.create_checkpoint("a", Lease("third")),
    "remove": lambda manager: manager.remove_checkpoint("a"),
    "rollback": lambda manager: manager.recover_checkpoint("a", rollback=True),
}


@pytest.mark.parametrize("how", REPLACEMENTS)
@pytest.mark.parametrize("links", [True, False], ids=["linked", "copied"])
def test_the_bytes_are_kept_whatever_replaces_them(directory: Path, how: str, links: bool) -> None:
    with ruined(directory) as manager:
        damaged = (directory / "a.json").read_bytes()
        with nullcontext() if links else links_refused(directory):
            REPLACEMENTS[how](manager)

    assert quarantined(directory) == [damaged]
    (name,) = names(directory / ".quarantine")
    assert name.startswith("a.2")
    assert name.endswith("Z.checksum-mismatch.json")
    assert os.stat(directory / ".quarantine").st_mode & 0o777 == 0o700


def test_a_folder_whose_name_could_not_be_synced_is_made_anew(directory: Path) -> None:
    """Another sync would succeed, and the name would still be lost."""
    with ruined(directory) as manager:
        with failing(directory, "fsync", lasting=True), pytest.raises(CheckpointWriteFailed):
            manager.create_checkpoint("a", NEW)
        assert not (directory / ".quarantine").exists()
        with watching(directory) as calls:
            manager.create_checkpoint("a", NEW)

    made = next(place for place, call in enumerate(calls) if call.name == "mkdir")
    assert calls[made + 1] == Call("fsync", ".")


# If it fails


def no_space(directory: Path, call: str) -> AbstractContextManager[object]:
    return failing(directory, call, errno.ENOSPC, lasting=True)


FAILURES: dict[str, tuple[Callable[[Path], AbstractContextManager[object]], bool, int]] = {
    "no link": (lambda directory: no_space(directory, "link"), True, errno.ENOSPC),
    "no folder": (lambda directory: no_space(directory, "mkdir"), True, errno.ENOSPC),
    "no copy": (lambda directory: no_space(directory, "write"), False, errno.ENOSPC),
    "an unreadable file that could only be copied": (
        lambda directory: failing(directory, "read", errno.EIO, about="a.json", lasting=True),
        False,
        errno.EIO,
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_without_a_copy_nothing_is_replaced_and_no_half_copy_is_left(directory: Path, failure: str) -> None:
    broken, links, number = FAILURES[failure]
    with ruined(directory) as manager:
        damaged = (directory / "a.json").read_bytes()
        with nullcontext() if links else links_refused(directory), broken(directory):
            for how in ("create", "rollback"):
                with pytest.raises(CheckpointWriteFailed) as caught:
                    REPLACEMENTS[how](manager)
                assert (caught.value.errno, caught.value.in_doubt) == (number, False)
        assert (directory / "a.json").read_bytes() == damaged
        assert quarantined(directory) == []


def test_an_interrupted_copy_leaves_no_half_copy(directory: Path) -> None:
    with ruined(directory) as manager:
        interrupted = failing(directory, "write", KeyboardInterrupt())
        with links_refused(directory), interrupted, pytest.raises(KeyboardInterrupt):
            manager.create_checkpoint("a", NEW)
    assert quarantined(directory) == []


def test_a_copy_that_fails_is_reported_as_such_even_if_half_of_it_is_stuck(directory: Path) -> None:
    with ruined(directory) as manager:
        full = mock.patch.object(os, "write", side_effect=OSError(errno.ENOSPC, "full"))
        stuck = mock.patch.object(os, "unlink", side_effect=OSError(errno.EPERM, "immutable"))
        with links_refused(directory), full, stuck, pytest.raises(CheckpointWriteFailed) as caught:
            manager.create_checkpoint("a", NEW)
    assert caught.value.errno == errno.ENOSPC


def test_a_removal_is_possible_without_a_copy_and_is_reported(directory: Path) -> None:
    events: list[Event] = []
    ruined(directory).close()
    (directory / ".quarantine").write_bytes(b"a file where the folder belongs")

    with CheckpointManager(directory, LEASES, on_event=events.append) as manager:
        manager.remove_checkpoint("a")
        assert "a" not in manager

    assert [event.kind for event in events] == [EventKind.DAMAGE, EventKind.NOT_QUARANTINED]
    assert events[1].key == "a"


@pytest.mark.parametrize("call", ["read", "open"])
def test_a_file_that_cannot_be_read_is_kept_by_its_name_alone(directory: Path, call: str) -> None:
    """Nothing has to be read for a link: a file with bad blocks can be kept and replaced."""
    with ruined(directory) as manager:
        damaged = (directory / "a.json").read_bytes()
        with failing(directory, call, errno.EIO, about="a.json", lasting=True):
            manager.create_checkpoint("a", NEW)
        assert manager.get_checkpoint("a").data == NEW
    assert quarantined(directory) == [damaged]
    assert names(directory / ".quarantine")[0].endswith(".unreadable.json")


def test_a_file_too_large_to_read_is_kept_as_it_is(directory: Path) -> None:
    with CheckpointManager(directory, LEASES) as manager:
        manager.create_checkpoint("a", Lease("x" * 5000))
    large = (directory / "a.json").read_bytes()

    with CheckpointManager(directory, LEASES, max_bytes=1000) as manager:
        manager.create_checkpoint("a", NEW)
        assert manager.get_checkpoint("a").data == NEW
    assert quarantined(directory) == [large]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_is_not_taken_for_damage_when_writing(directory: Path, number: int) -> None:
    CheckpointManager(directory, LEASES).create_checkpoint("a", OLD)
    with CheckpointManager(directory, LEASES) as manager:
        short = failing(directory, "open", number, about="a.json", lasting=True)
        with short, pytest.raises(CheckpointWriteFailed) as caught:
            manager.create_checkpoint("a", NEW)
        assert (caught.value.errno, caught.value.in_doubt) == (number, False)
        assert manager.get_checkpoint("a").data == OLD
    assert quarantined(directory) == []


def test_a_link_that_points_to_the_damaged_file_is_no_copy_of_it(directory: Path) -> None:
    """It would point to the new file as soon as that exists."""
    with CheckpointManager(directory, LEASES) as manager:
        (directory / "a.json").write_bytes(b"damaged")
        (directory / ".quarantine").mkdir()
        (directory / ".quarantine" / copy_of("a", 1)).symlink_to(directory / "a.json")

        manager.create_checkpoint("a", OLD)

        assert b"damaged" in quarantined(directory)


# How much is kept. Never pruned: the copy just made, whatever the clock says, and the last of what is damaged or gone.


@pytest.fixture
def anything(directory: Path) -> Iterator[Manager]:
    with CheckpointManager[Any](directory) as manager:
        yield manager


def copy_of(key: str, day: int, reason: str = "truncated", year: int = 2020) -> str:
    return f"{key}.{year}01{day:02}T000000000000Z.{reason}.json"


def kept_before(directory: Path, *copies: str, content: bytes = b"") -> None:
    """Copies as earlier owners left them. The larger the day, the newer."""
    (directory / ".quarantine").mkdir(mode=0o700, exist_ok=True)
    for name in copies:
        (directory / ".quarantine" / name).write_bytes(content)


def replaced(anything: Manager, directory: Path, key: str, blob: bytes) -> None:
    """Damage a key and write it anew, so that the damage is in quarantine."""
    (directory / f"{key}.json").write_bytes(blob)
    anything.verify()
    anything.create_checkpoint(key, blob.decode())


def test_each_key_keeps_its_own_newest_four_and_takes_none_of_another(anything: Manager, directory: Path) -> None:
    keys = ("a", "a.b", "a.b.c")  # each is the beginning of the next, with a dot after it
    kept: dict[str, list[bytes]] = {key: [] for key in keys}
    for turn in range(7):
        for key in keys:
            blob = b"%s damaged %d" % (key.encode(), turn)
            replaced(anything, directory, key, blob)
            kept[key] = [*kept[key], blob][-KEPT_PER_KEY:]
            assert sorted(quarantined(directory)) == sorted(blob for blobs in kept.values() for blob in blobs)
    assert KEPT_PER_KEY == 4


@pytest.mark.parametrize("year", [2020, 2999], ids=["behind", "ahead"])
def test_a_clock_that_was_wrong_costs_no_copy_that_has_just_been_made(
    anything: Manager, directory: Path, year: int
) -> None:
    kept_before(directory, *(copy_of("a", day, year=year) for day in (1, 2, 3, 4)), content=b"wrong clock")
    for turn in range(3):
        replaced(anything, directory, "a", b"right clock %d" % turn)
        assert b"right clock %d" % turn in quarantined(directory)

    assert len(quarantined(directory)) == 4
    assert copy_of("a", 4, year=year) in names(directory / ".quarantine")


@pytest.mark.parametrize(
    ("reason", "other", "most"), [("truncated", RETIRED, KEPT), (RETIRED, "truncated", KEPT_RETIRED)]
)
def test_all_keys_together_keep_the_newest_of_each_sort(
    anything: Manager, directory: Path, reason: str, other: str, most: int
) -> None:
    """Retired entries have a number of their own, so that neither sort displaces the other."""
    copies = [copy_of(f"key-{number}", 1 + number // 100, reason) for number in range(most + 2)]
    kept_before(directory, copy_of("other", 1, other), *copies)
    with anything.batch() as batch:
        for number in range(most + 2):
            batch.create_checkpoint(f"key-{number}", number)
    anything.close()
    (directory / "new.json").write_bytes(b"damaged")
    store = FileStore(directory)

    store.quarantine("new", Reason(reason) if reason != RETIRED else reason)
    store.close()

    left = {*names(directory / ".quarantine")}
    assert {*copies} - left == {*sorted(copies[:100])[:3]}
    assert copy_of("other", 1, other) in left


def test_the_only_copy_of_what_is_damaged_or_gone_is_not_pruned(anything: Manager, directory: Path) -> None:
    keys = [f"key-{number}" for number in range(KEPT + 2)]
    kept_before(directory, *(copy_of(key, 1) for key in keys))
    anything.create_checkpoint("key-0", "whole")
    (directory / "key-1.json").write_bytes(b"still damaged")

    replaced(anything, directory, "new", b"damaged")

    left = names(directory / ".quarantine")
    assert len(left) == KEPT + 2
    assert copy_of("key-0", 1) not in left


def test_all_keys_together_keep_no_more_bytes_than_the_limit(anything: Manager, directory: Path) -> None:
    kept_before(directory, *(copy_of(key, day) for day, key in enumerate("abcd", 1)))
    for key in "abcd":
        anything.create_checkpoint(key, "whole")
    for path in (directory / ".quarantine").iterdir():
        os.truncate(path, KEPT_BYTES // 3)

    replaced(anything, directory, "new", b"damaged")
    assert [name.split(".")[0] for name in names(directory / ".quarantine")] == ["c", "d", "new"]

    (directory / "large.json").touch()
    os.truncate(directory / "large.json", KEPT_BYTES)
    anything.create_checkpoint("large", 1)
    assert [name.split(".")[0] for name in names(directory / ".quarantine")] == ["large"], "the newest copy stays"


def test_what_is_no_copy_of_ours_is_neither_pruned_nor_listed(anything: Manager, directory: Path) -> None:
    kept_before(directory, "a.by.hand.json", "README", "..json")
    for turn in range(6):
        replaced(anything, directory, "a", b"damaged %d" % turn)
    anything.close()
    store = FileStore(directory)
    listed = store.quarantined()
    store.close()

    assert {"a.by.hand.json", "README", "..json"} < {*names(directory / ".quarantine")}
    assert [path.split("/")[-1] for path in listed.pop("a")] == names(directory / ".quarantine", "a.2")
    assert listed == {}


def test_a_copy_that_cannot_be_pruned_is_no_reason_to_refuse_the_write(anything: Manager, directory: Path) -> None:
    kept_before(directory, *(copy_of("a", day) for day in (1, 2, 3, 4)))
    with failing(directory, "unlink", errno.EPERM, about=copy_of("a", 1), lasting=True):
        replaced(anything, directory, "a", b"damaged")

    assert anything.get_checkpoint("a").data == "damaged"
    assert len(quarantined(directory)) == 5
