"""read_only=True: reads beside any owner, takes no lock, changes nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointmanager import CheckpointManager, CheckpointNotFound, CheckpointWriteFailed, DirectoryUnusable
from checkpointmanager.testing import watching

from ..processes import Agent


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "claims"


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent


def _temps(directory: Path) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith(".tmp-")]


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
    temps = _temps(directory)
    with CheckpointManager(directory, read_only=True) as reader:
        assert reader.list_checkpoints() == []
        assert _temps(directory) == temps
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
