"""An admin restores, removes or copies a file under a running owner: a value that is not stored is not "unchanged"."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointWriteFailed, MemoryStore

Manager = CheckpointManager[Any]


def put_back(directory: Path) -> None:
    """An older, valid generation."""
    shutil.copy(directory / ".previous-a", directory / "a.json")


def put_back_by_rename(directory: Path) -> None:
    os.rename(directory / ".previous-a", directory / "a.json")


def remove(directory: Path) -> None:
    (directory / "a.json").unlink()


def empty(directory: Path) -> None:
    (directory / "a.json").write_bytes(b"")


def replace_by_folder(directory: Path) -> None:
    remove(directory)
    (directory / "a.json").mkdir()


CHANGES = [put_back, put_back_by_rename, remove, empty]


def written(directory: Path) -> Manager:
    manager: Manager = CheckpointManager(directory)
    manager.create_checkpoint("a", {"renewals": 1})
    manager.create_checkpoint("a", {"renewals": 2})
    return manager


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("in_a_batch", [False, True])
def test_create_writes_what_is_no_longer_stored(
    directory: Path, change: Callable[[Path], None], in_a_batch: bool
) -> None:
    with written(directory) as manager:
        change(directory)

        if in_a_batch:
            with manager.batch() as batch:
                batch.create_checkpoint("a", {"renewals": 2})
        else:
            assert not manager.create_checkpoint("a", {"renewals": 2}).unchanged

        assert manager.get_checkpoint("a").data == {"renewals": 2}
        assert manager.create_checkpoint("a", {"renewals": 2}).unchanged


def test_a_folder_in_its_place_is_not_taken_for_unchanged(directory: Path) -> None:
    with written(directory) as manager:
        replace_by_folder(directory)

        with pytest.raises(CheckpointWriteFailed, match="move it away"):
            manager.create_checkpoint("a", {"renewals": 2})

        (directory / "a.json").rmdir()
        assert not manager.create_checkpoint("a", {"renewals": 2}).unchanged


@pytest.mark.parametrize("change", [put_back, put_back_by_rename])
def test_update_writes_what_it_computed_from_an_older_generation(
    directory: Path, change: Callable[[Path], None]
) -> None:
    with written(directory) as manager:
        change(directory)
        assert manager.get_checkpoint("a").data == {"renewals": 1}

        updated = manager.update_checkpoint("a", lambda lease: {"renewals": lease["renewals"] + 1})

        assert not updated.unchanged
        assert updated.generation == 3, "above all that this owner has written"
        assert manager.get_checkpoint("a").data == {"renewals": 2}


def test_a_memory_store_is_looked_at_as_well() -> None:
    store = MemoryStore()
    manager: Manager = CheckpointManager(store)
    for renewals in (1, 2):
        manager.create_checkpoint("a", renewals)
    store.current["a"] = store.previous["a"]

    assert not manager.create_checkpoint("a", 2).unchanged
    assert manager.get_checkpoint("a").data == 2
