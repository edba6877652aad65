"""read_only=True: reads beside any owner, or beside what a dead one left; takes no lock of others, changes nothing."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointmanager import (
    CheckpointManager,
    CheckpointNotFound,
    CheckpointWriteFailed,
    DirectoryUnusable,
    Event,
    EventKind,
)
from checkpointmanager.testing import failing, watching

from ..contents import names
from ..journals import blob, journal_of, left, opened, put, reader_of, seen
from ..processes import LIMIT, Agent, until

pytestmark = pytest.mark.usefixtures("kit_standing_by")


def test_a_reader_works_beside_an_owner_and_takes_no_lock(agent: Agent, directory: Path) -> None:
    agent.ask("open", directory)
    agent.ask("create", "claim", 1)
    with watching(directory) as calls, CheckpointManager(directory, read_only=True) as reader:
        assert reader.get_checkpoint("claim").data == 1
        agent.ask("create", "claim", 2)
        assert reader.get_checkpoint("claim").data == 2
        assert reader.list_checkpoints() == ["claim"]
        assert reader.load().checkpoints["claim"].generation == 2
        assert reader.verify().intact == 1
    assert calls
    assert not [call for call in calls if ".lock" in call.about]
    assert agent.ask("create", "claim", 3) == 3


def test_a_reader_does_not_keep_an_owner_out_nor_touch_its_temp_file(agent: Agent, directory: Path) -> None:
    agent.ask("open", directory)
    agent.send("stop_before", "rename", "claim", 1)
    agent.wait_until_stopped()
    temps = names(directory, ".tmp-")
    with CheckpointManager(directory, read_only=True) as reader:
        assert reader.list_checkpoints() == []
        assert names(directory, ".tmp-") == temps
        agent.go_on()
        assert agent.answer() == 1
        assert reader.get_checkpoint("claim").data == 1


def _batch(reader: CheckpointManager[int]) -> None:
    with reader.batch() as batch:
        batch.create_checkpoint("claim", 2)


@pytest.mark.parametrize(
    "write",
    [
        lambda reader: reader.create_checkpoint("claim", 2),
        lambda reader: reader.update_checkpoint("claim", lambda number: number + 1),
        lambda reader: reader.remove_checkpoint("claim"),
        lambda reader: reader.recover_checkpoint("claim"),
        _batch,
    ],
    ids=["create", "update", "remove", "recover", "batch"],
)
def test_a_reader_refuses_to_write(directory: Path, write: Callable[[CheckpointManager[int]], object]) -> None:
    with CheckpointManager(directory) as manager:
        manager.create_checkpoint("claim", 1)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with CheckpointManager(directory, read_only=True) as reader:
        with pytest.raises(CheckpointWriteFailed, match=r"read_only=True.*nothing was changed") as refusal:
            write(reader)
        assert (refusal.value.errno, refusal.value.in_doubt) == (errno.EROFS, False)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_a_reader_of_a_missing_directory_creates_nothing(directory: Path) -> None:
    with pytest.raises(DirectoryUnusable, match=str(directory)) as refusal:
        CheckpointManager(directory, read_only=True)
    assert refusal.value.errno == errno.ENOENT
    assert not directory.exists()


def test_a_reader_of_an_empty_directory_leaves_it_empty(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    with CheckpointManager(directory, read_only=True) as reader:
        assert len(reader) == 0
        with pytest.raises(CheckpointNotFound):
            reader.get_checkpoint("claim")
    assert list(directory.iterdir()) == []


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    """Key "a" is at generation 5."""
    directory = tmp_path / "claims"
    directory.mkdir(mode=0o700)
    left(directory, "a.json", blob(put("a", 5)))
    left(directory, ".previous-a", blob(put("a", 4)))
    return directory


def test_a_reader_beside_a_living_owner_reads_names_and_no_journal(claims: Path) -> None:
    with opened(claims) as manager, reader_of(claims) as reader:
        manager.create_checkpoint("a", "six")
        with watching(claims) as calls:
            assert seen(reader) == ("six", "5")
        assert ("read", ".journal") not in [(call.name, call.about) for call in calls]


def test_a_change_that_is_committed_and_not_in_place_is_not_seen_by_readers_beside_its_owner(claims: Path) -> None:
    with opened(claims) as manager, reader_of(claims) as reader:
        manager.create_checkpoint("b", 1)
        with failing(claims, "rename", about="a.json"):
            manager.create_checkpoint("a", "six")
        assert (manager.get_checkpoint("a").data, reader.get_checkpoint("a").data) == ("six", "5")
        manager.create_checkpoint("a", "seven")
        assert reader.get_checkpoint("a").data == "seven"


def test_a_reader_notices_that_another_journal_has_taken_the_place(claims: Path) -> None:
    left(claims, ".journal", journal_of([put("a", 6)]))
    with reader_of(claims) as reader:
        assert seen(reader)[0] == "6"
        left(claims, ".new", journal_of([put("a", 6)], [put("a", 7)]))
        os.rename(claims / ".new", claims / ".journal")
        assert seen(reader)[0] == "7"
        with opened(claims) as manager:
            manager.remove_checkpoint("a")
            assert seen(reader)[0] is None
        assert seen(reader)[0] is None


def test_a_killed_owner_s_changes_are_seen_by_readers_and_taken_over(tmp_path: Path) -> None:
    claims = tmp_path / "claims"
    with Agent() as agent:
        agent.ask("open", claims)
        agent.ask("create", "a", 1)
        agent.send("stop_before", "rename", "a", 2)
        agent.wait_until_stopped()
        with reader_of(claims) as reader:
            assert reader.get_checkpoint("a").data == 1, "the owner lives, and its names count"
        agent.kill()
        with reader_of(claims) as reader:
            until(lambda: reader.get_checkpoint("a").data == 2)
    events: list[Event] = []
    with opened(claims, on_event=events.append) as manager:
        assert seen(manager) == (2, 1)
    assert EventKind.JOURNAL_REPLAYED in [event.kind for event in events]


def test_a_sharer_finishes_the_journal_of_an_owner_that_came_and_died(tmp_path: Path) -> None:
    claims = tmp_path / "claims"
    with opened(claims, sharing=True) as sharer:
        with Agent() as agent:
            agent.ask("open", claims)
            agent.ask("create", "a", 1)
            agent.kill()
        assert (claims / ".journal").exists()
        assert sharer.update_checkpoint("a", lambda number: number + 1).data == 2
        assert not (claims / ".journal").exists()


def test_a_reader_never_keeps_an_owner_from_its_journal(claims: Path) -> None:
    left(claims, ".journal", journal_of([put("a", 6)]))
    stop = threading.Event()

    def read() -> None:
        with reader_of(claims) as reader:
            while not stop.is_set():
                reader.get_checkpoint("a")

    reading = [threading.Thread(target=read) for _ in range(2)]
    for thread in reading:
        thread.start()
    try:
        for number in range(20):
            with opened(claims, lock_timeout=0) as manager:
                manager.create_checkpoint("a", number)
    finally:
        stop.set()
        for thread in reading:
            thread.join(LIMIT)
