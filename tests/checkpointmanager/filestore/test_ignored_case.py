"""Where `node-a` and `Node-A` are one name, the second key is refused: it never replaces or removes the first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from checkpointmanager import BatchFailed, CheckpointManager, CheckpointWriteFailed, Event, EventKind

from ..contents import names

Manager = CheckpointManager[Any]


@pytest.fixture
def directory(fs: FakeFilesystem) -> Path:
    fs.is_case_sensitive = False
    return Path("/claims")


def test_it_is_reported_when_the_directory_is_opened(directory: Path) -> None:
    events: list[Event] = []
    CheckpointManager[Any](directory, on_event=events.append).close()
    assert [event.kind for event in events] == [EventKind.CASE_INSENSITIVE_FILE_SYSTEM]


def test_nothing_is_reported_where_case_counts(fs: FakeFilesystem) -> None:
    events: list[Event] = []
    for _ in range(2):
        CheckpointManager[Any]("/claims", on_event=events.append).close()
        Path("/claims/.LOCK").touch()
    assert events == []


def in_a_batch(manager: Manager) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("node-a", 2)


CHANGES: dict[str, Callable[[Manager], object]] = {
    "create": lambda manager: manager.create_checkpoint("node-a", 2),
    "batch": in_a_batch,
    "remove": lambda manager: manager.remove_checkpoint("node-a"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("reopened", [False, True])
def test_the_second_key_is_refused_and_the_first_one_stays(directory: Path, change: str, reopened: bool) -> None:
    manager: Manager = CheckpointManager(directory)
    manager.create_checkpoint("Node-A", 1)
    if reopened:
        manager.close()
        manager = CheckpointManager(directory)

    with manager:
        with pytest.raises(CheckpointWriteFailed, match="ignores case and has 'Node-A'") as caught:
            CHANGES[change](manager)
        assert not caught.value.in_doubt
        assert list(manager) == ["Node-A"]
        assert manager.get_checkpoint("Node-A").data == 1
        assert names(directory) == [".lock", "Node-A.json"]


def test_of_two_in_one_batch_one_is_refused(directory: Path) -> None:
    with CheckpointManager[Any](directory) as manager:
        with pytest.raises(BatchFailed) as caught, manager.batch() as batch:
            batch.create_checkpoint("Node-A", 1)
            batch.create_checkpoint("node-a", 2)

        assert list(caught.value.failures) == ["node-a"]
        assert list(manager) == ["Node-A"]
        assert manager.get_checkpoint("Node-A").data == 1


def test_of_two_created_at_the_same_time_one_is_refused(directory: Path) -> None:
    with CheckpointManager[Any](directory) as manager:
        ready = threading.Barrier(2)

        def create(key: str) -> bool:
            ready.wait()
            try:
                manager.create_checkpoint(key, key)
            except CheckpointWriteFailed:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            made = dict(zip(["Node-A", "node-a"], pool.map(create, ["Node-A", "node-a"]), strict=True))

        (key,) = (key for key, was_made in made.items() if was_made)
        assert list(manager) == [key]
        assert manager.get_checkpoint(key).data == key


def test_all_else_works(directory: Path) -> None:
    with CheckpointManager[Any](directory) as manager:
        manager.create_checkpoint("Node-A", 1)
        manager.create_checkpoint("Node-A", 2)
        manager.remove_checkpoint("Node-A")
        manager.create_checkpoint("node-a", 3)
        (directory / "node-a.json").write_bytes(b"")
        manager.verify()
        manager.create_checkpoint("node-a", 4)
        assert manager.get_checkpoint("node-a").data == 4
