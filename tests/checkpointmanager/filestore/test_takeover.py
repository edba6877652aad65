"""What the next owner makes of the journal that a dead owner left, and what readers see of it before."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import (
    CheckpointNotFound,
    CheckpointTooNew,
    CheckpointUnreadable,
    DirectoryUnusable,
    Event,
    EventKind,
)
from checkpointmanager.format import CLOSING, Change, checksum_of, seal_removal
from checkpointmanager.testing import Call, failing, watching

from ..contents import names
from ..journals import blob, gone, journal_of, left, opened, put, reader_of, seen

pytestmark = pytest.mark.usefixtures("kit_standing_by", "no_waiting_for_the_disk")

MODES: list[dict[str, Any]] = [{}, {"sharing": True}, {"durability": "atomic"}]


@pytest.fixture
def directory(real_directory: Path) -> Path:
    """Key "a" is at generation 5."""
    directory = real_directory
    directory.mkdir(mode=0o700)
    left(directory, "a.json", blob(put("a", 5)))
    left(directory, ".previous-a", blob(put("a", 4)))
    return directory


CASES: dict[str, tuple[list[list[Change]], tuple[Any, Any]]] = {
    "nothing": ([], ("5", "4")),
    "the generation that is in place": ([[put("a", 5)]], ("5", "4")),
    "a newer one": ([[put("a", 6)]], ("6", "5")),
    "newer ones out of order": ([[put("a", 8)], [put("a", 6)], [put("a", 7)]], ("8", "7")),
    "older ones": ([[put("a", 3)], [put("a", 2)]], ("5", "4")),
    "a removal": ([[gone("a", 6)]], (None, None)),
    "a removal that a later file outlived": ([[gone("a", 3)]], ("5", "4")),
    "a creation after a removal": ([[gone("a", 6)], [put("a", 7)]], ("7", None)),
    "a removal after a change": ([[put("a", 6)], [gone("a", 7)]], (None, None)),
}


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_the_highest_generation_counts_for_readers_and_the_next_owner_alike(
    directory: Path, case: str, options: dict[str, Any]
) -> None:
    records, expected = CASES[case]
    left(directory, ".journal", journal_of(*records))
    with reader_of(directory) as reader:
        assert seen(reader) == expected
        assert reader.list_checkpoints() == (["a"] if expected[0] else [])
        assert ("a" in reader) is bool(expected[0])
    with opened(directory, **options) as manager:
        assert seen(manager) == expected
        highest = max([5, *(change.generation for record in records for change in record)])
        if expected[0]:
            assert manager.create_checkpoint("a", "new").generation > highest - (highest > int(expected[0]))
        assert names(directory, ".tmp-") == []
    assert names(directory, ".journal") == []
    with reader_of(directory) as reader:
        assert seen(reader)[0] == ("new" if expected[0] else None)


def test_all_keys_of_a_record_count_or_none(directory: Path) -> None:
    left(directory, "b.json", blob(put("b", 1)))
    whole = journal_of([put("a", 6), gone("b", 2), put("c", 1)])
    for journal, expected in ((whole, ("6", None, "1")), (whole.replace(b'"6"', b'"X"'), ("5", "1", None))):
        copy = directory.with_name(f"copy-{len(journal)}-{expected[0]}")
        shutil.copytree(directory, copy)
        copy.chmod(0o700)
        left(copy, ".journal", journal)
        with reader_of(copy) as reader:
            assert tuple(seen(reader, key)[0] for key in "abc") == expected
        with opened(copy) as manager:
            assert tuple(seen(manager, key)[0] for key in "abc") == expected


def test_a_torn_or_rotten_record_is_an_event_and_all_others_count(directory: Path) -> None:
    journal = journal_of([put("b", 1, "rotten")], [put("a", 6)], [put("c", 1)]).replace(b'"rotten"', b'"rotteN"')
    left(directory, ".journal", journal)
    events: list[Event] = []
    with opened(directory, on_event=events.append) as manager:
        assert [seen(manager, key)[0] for key in "abc"] == ["6", None, "1"]
    assert [event.kind for event in events] == [EventKind.JOURNAL_REPLAYED, EventKind.DAMAGE]
    assert "changes of 2 keys" in events[0].detail
    assert "1 records are damaged" in events[1].detail


def test_a_sealed_removal_under_a_name_is_an_absent_checkpoint(directory: Path) -> None:
    left(directory, "a.json", seal_removal(gone("a", 6)))
    with reader_of(directory) as reader, pytest.raises(CheckpointNotFound):
        reader.get_checkpoint("a")


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("call", ["open", "read"])
def test_a_journal_that_cannot_be_read_refuses_the_open_and_says_so(directory: Path, call: str, number: int) -> None:
    left(directory, ".journal", journal_of([put("a", 6)]))
    broken = partial(failing, directory, call, number, about=".journal", lasting=True)
    with broken(), pytest.raises(DirectoryUnusable, match=r"\.journal"):
        opened(directory)
    with broken(), reader_of(directory) as reader:
        looks: list[Callable[[], object]] = [lambda: reader.get_checkpoint("a"), reader.load, reader.list_checkpoints]
        for look in looks:
            with pytest.raises(DirectoryUnusable, match=r"\.journal"):
                look()
    with opened(directory) as manager:
        assert seen(manager) == ("6", "5")


@pytest.mark.parametrize("name", ["a.json", ".previous-a"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("options", [{}, {"read_only": True}], ids=["owner", "reader"])
def test_a_file_that_cannot_be_read_costs_its_key_and_no_other(
    directory: Path, options: dict[str, Any], number: int, name: str
) -> None:
    left(directory, ".journal", journal_of([put("a", 6), put("b", 1)]))
    with failing(directory, "open", number, about=name, lasting=True), opened(directory, **options) as manager:
        with pytest.raises(CheckpointUnreadable) as caught:
            manager.get_checkpoint("a")
        assert caught.value.errno == number
        assert manager.get_checkpoint("b").data == "1"
        loaded = manager.load()
        assert (set(loaded.problems), set(loaded.checkpoints)) == ({"a"}, {"b"})
    with opened(directory) as manager:
        assert seen(manager) == ("6", "5")


@pytest.mark.parametrize("options", [*MODES, {"read_only": True}], ids=str)
def test_the_journal_of_a_newer_release_is_left_alone(directory: Path, options: dict[str, Any]) -> None:
    body = b'"format":2,"journal":"2030-01-01T00:00:00.000000Z"' + CLOSING
    journal = checksum_of(body) + body
    left(directory, ".journal", journal)
    with pytest.raises((CheckpointTooNew, DirectoryUnusable), match=r"\.journal.*release"):
        opened(directory, **options).get_checkpoint("a")
    assert (directory / ".journal").read_bytes() == journal
    assert (directory / "a.json").read_bytes() == blob(put("a", 5))


@pytest.mark.parametrize("name", ["a.json", ".previous-a"])
@pytest.mark.parametrize("options", [{}, {"read_only": True}], ids=["owner", "reader"])
def test_a_sparse_file_of_a_terabyte_is_an_error_and_not_a_lack_of_memory(
    directory: Path, name: str, options: dict[str, Any]
) -> None:
    left(directory, ".journal", journal_of([put("a", 6)], [put("b", 1)]))
    os.truncate(directory / name, 1 << 40)
    with opened(directory, **options) as manager:
        assert manager.get_checkpoint("b").data == "1"
        assert manager.load().problems.keys() <= {"a"}


@pytest.mark.parametrize("options", [{}, {"read_only": True}], ids=["owner", "reader"])
def test_a_sparse_journal_of_a_terabyte_is_an_error_and_not_a_lack_of_memory(
    directory: Path, options: dict[str, Any]
) -> None:
    left(directory, ".journal", journal_of([put("a", 6)]))
    os.truncate(directory / ".journal", 1 << 40)
    with pytest.raises(DirectoryUnusable, match=r"\.journal.*limit"):
        opened(directory, **options).get_checkpoint("a")


def test_a_smaller_limit_at_one_open_loses_nothing(directory: Path) -> None:
    large = "x" * 50_000
    left(directory, "b.json", blob(put("b", 1, large)))
    left(directory, ".journal", journal_of([put("b", 2, large + "2")], [put("a", 6)]))
    with opened(directory, max_bytes=1000) as manager:
        assert seen(manager) == ("6", "5")
        assert set(manager.load().problems) == {"b"}
    with opened(directory) as manager:
        assert seen(manager, "b") == (large + "2", large)


def test_a_folder_in_the_way_blocks_only_its_key_until_it_is_moved(directory: Path) -> None:
    (directory / "b.json").mkdir()
    left(directory, ".journal", journal_of([put("b", 1)], [put("a", 6)]))
    events: list[Event] = []
    with opened(directory, on_event=events.append) as manager:
        assert seen(manager) == ("6", "5")
        assert manager.create_checkpoint("a", "new").generation == 7
        with pytest.raises(OSError, match="move it away"):
            manager.create_checkpoint("b", "new")
    assert EventKind.UNSETTLED in [event.kind for event in events]
    assert (directory / ".journal").exists(), "it still has the change"
    (directory / "b.json").rmdir()
    with opened(directory) as manager:
        assert (seen(manager)[0], seen(manager, "b")[0]) == ("new", "1")
    assert not (directory / ".journal").exists()


@pytest.mark.parametrize("name", [".spares", ".transaction"])
def test_what_an_unreleased_version_left_is_refused(directory: Path, name: str) -> None:
    left(directory, name, b"")
    with pytest.raises(DirectoryUnusable, match="earlier version"):
        opened(directory)


def test_a_folder_in_place_of_a_previous_generation_costs_only_that(directory: Path) -> None:
    left(directory, ".journal", journal_of([put("a", 6)]))
    (directory / ".previous-a").unlink()
    (directory / ".previous-a").mkdir()
    with reader_of(directory) as reader:
        assert seen(reader) == ("6", "5")
    with opened(directory) as manager:
        assert seen(manager) == ("6", None)
    assert names(directory, ".journal") == names(directory, ".tmp-") == []


def test_a_newer_release_s_file_that_states_no_generation_is_never_replaced_nor_rolled_back_to(
    directory: Path,
) -> None:
    body = b'"format":2,"kind":"JSON","data":1' + CLOSING
    left(directory, ".previous-a", checksum_of(body) + body)
    left(directory, ".journal", journal_of([put("a", 6)]))
    for opening in (reader_of, opened):
        with opening(directory) as manager:
            assert seen(manager) == ("6", "5")
    left(directory, "a.json", checksum_of(body) + body)
    left(directory, ".journal", journal_of([put("a", 7)]))
    for opening in (reader_of, opened):
        with opening(directory) as manager, pytest.raises(CheckpointTooNew):
            manager.get_checkpoint("a")
    assert (directory / "a.json").read_bytes() == checksum_of(body) + body


def test_a_removed_key_stays_absent_while_its_removal_is_made_durable_again(directory: Path) -> None:
    left(directory, ".journal", journal_of([gone("a", 6)]))
    found: list[tuple[bool, list[str]]] = []

    def look(call: Call) -> None:
        if call.name == "unlink" and call.concerns("a.json"):
            found.append(("a" in manager, manager.list_checkpoints()))

    with opened(directory) as manager, watching(directory, before=look):
        with manager.batch() as batch:
            for number in range(300):  # more than may wait to be settled
                batch.create_checkpoint(f"k{number}", number)
        manager.create_checkpoint("next", 1)
        assert found[:1] == [(False, manager.list_checkpoints()[:-1])]
