"""A removal whose sync failed is taken back, so that it can be repeated: another sync alone would not do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointNotFound, CheckpointWriteFailed
from checkpointmanager.testing import every_fault, failing, watching

from ..contents import names

Manager = CheckpointManager[Any]


def no_sync(directory: Path) -> AbstractContextManager[object]:
    return failing(directory, "fsync", errno.EIO, lasting=True)


@pytest.fixture
def manager(real_directory: Path) -> Iterator[Manager]:
    """A directory sync of its owner has failed once; since then key "a" has two generations."""
    with CheckpointManager(real_directory) as manager:
        with no_sync(real_directory), pytest.raises(CheckpointWriteFailed):
            manager.remove_checkpoint("other")
        manager.create_checkpoint("a", 1)
        manager.create_checkpoint("a", 2)
        yield manager


def unreturnable(manager: Manager, directory: Path) -> None:
    """A removal of key "a" whose sync fails, and then the rename that would put it back."""
    with (
        no_sync(directory),
        failing(directory, "rename", errno.EIO, nth=3, lasting=True),
        pytest.raises(CheckpointWriteFailed),
    ):
        manager.remove_checkpoint("a")


def _value(reader: Manager) -> object:
    try:
        return reader.get_checkpoint("a").data
    except CheckpointNotFound:
        return None


def test_after_any_failed_sync_a_missing_name_is_left_as_it_is(manager: Manager, real_directory: Path) -> None:
    seen: set[str] = set()

    with watching(real_directory, after=lambda _: seen.update(os.listdir(real_directory))):
        manager.remove_checkpoint("ghost")

    assert [name for name in seen if "ghost" in name] == []


def test_the_key_is_back_and_the_removal_can_be_repeated(manager: Manager, real_directory: Path) -> None:
    for _ in range(2):
        with no_sync(real_directory), pytest.raises(CheckpointWriteFailed) as failure:
            manager.remove_checkpoint("a")
        assert failure.value.in_doubt
        assert manager.get_checkpoint("a").data == 2
        previous = manager.previous_checkpoint("a")
        assert previous is not None
        assert previous.data == 1
        assert names(real_directory, ".tmp-") == []

    with watching(real_directory) as made:
        manager.remove_checkpoint("a")

    calls = [f"rename {call.about.split()[0]}" if call.name == "rename" else call.name for call in made]
    assert calls.index("rename a.json") < calls.index("rename .previous-a") < calls.index("fsync")
    assert names(real_directory) == [".lock"]


@pytest.mark.parametrize("syncs_fail", [False, True])
def test_a_reader_sees_the_old_checkpoint_or_none_at_every_moment(
    manager: Manager, real_directory: Path, syncs_fail: bool
) -> None:
    seen: list[object] = []
    with CheckpointManager(real_directory, read_only=True) as reader:

        def look(_: object) -> None:
            seen.append(_value(reader))

        with watching(real_directory, before=look, after=look):
            if syncs_fail:
                with no_sync(real_directory), pytest.raises(CheckpointWriteFailed):
                    manager.remove_checkpoint("a")
            manager.remove_checkpoint("a")

    assert set(seen) == {2, None}
    assert len(seen) > 10


def test_a_kill_while_it_is_repeated_leaves_the_old_checkpoint_or_none() -> None:
    def in_doubt(directory: Path) -> Manager:
        manager: Manager = CheckpointManager(directory / "claims")
        manager.create_checkpoint("a", 1)
        with no_sync(directory), pytest.raises(CheckpointWriteFailed):
            manager.remove_checkpoint("a")
        return manager

    deaths = every_fault(lambda manager: manager.remove_checkpoint("a"), setup=in_doubt, errors=())
    for death in deaths:
        directory = death.directory / "claims"
        with CheckpointManager[Any](directory) as reopened:
            assert _value(reopened) in (1, None)
            assert names(directory, ".tmp-") == []
    assert deaths.runs >= 5


def test_what_cannot_be_put_back_is_put_back_when_the_removal_is_repeated(
    manager: Manager, real_directory: Path
) -> None:
    """A double fault: the sync fails, and so does the rename after it."""
    unreturnable(manager, real_directory)
    with failing(real_directory, "rename", errno.EIO), pytest.raises(CheckpointWriteFailed) as caught:
        manager.remove_checkpoint("a")
    assert caught.value.in_doubt

    with watching(real_directory) as calls:
        manager.remove_checkpoint("a")

    assert [call.about.split()[-1] for call in calls if call.name == "rename"].count("a.json") == 1
    assert names(real_directory) == [".lock"]


def test_what_could_not_be_put_back_never_takes_the_place_of_something_newer(
    manager: Manager, real_directory: Path
) -> None:
    unreturnable(manager, real_directory)
    manager.create_checkpoint("a", 3)

    with watching(real_directory) as calls:
        manager.remove_checkpoint("a")

    assert "a.json" not in [call.about.split()[-1] for call in calls if call.name == "rename"]
    assert names(real_directory) == [".lock"]


def test_an_orphan_whose_removal_at_open_was_in_doubt_is_removed_by_the_next_open(real_directory: Path) -> None:
    with CheckpointManager[Any](real_directory) as manager:
        manager.create_checkpoint("a", 1)
        manager.create_checkpoint("a", 2)
    (real_directory / "a.json").unlink()

    with failing(real_directory, "fsync", errno.EIO), pytest.raises(OSError, match="Input/output error"):
        CheckpointManager[Any](real_directory)
    assert names(real_directory) == [".lock", ".previous-a"], "kept, so that the next open repeats the removal"

    CheckpointManager[Any](real_directory).close()
    assert names(real_directory) == [".lock"]
