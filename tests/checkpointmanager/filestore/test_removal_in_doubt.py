"""A removal whose sync failed is made once more when it is repeated: another sync alone would not bring it back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointManager, CheckpointWriteFailed
from checkpointmanager.testing import failing, watching


def _removal(manager: CheckpointManager[Any], directory: Path) -> list[str]:
    """The calls of the removal of key "a" that change or sync a name, each with the name that it leaves."""
    with watching(directory) as calls:
        manager.remove_checkpoint("a")
    return [f"{call.name} {call.about.split()[-1]}" for call in calls if call.name in ("rename", "unlink", "fsync")]


def test_the_name_changes_once_more_before_it_is_synced(real_directory: Path) -> None:
    with CheckpointManager(real_directory) as manager:
        manager.create_checkpoint("a", 1)
        with failing(real_directory, "fsync"), pytest.raises(CheckpointWriteFailed) as failure:
            manager.remove_checkpoint("a")
        assert failure.value.in_doubt

        calls = _removal(manager, real_directory)

    again = calls[calls.index("rename a.json") :]
    assert again.index("unlink a.json") < again.index("fsync .")
    assert not [name for name in os.listdir(real_directory) if name.startswith((".tmp-", "a"))]


def test_without_a_doubt_a_missing_name_is_left_as_it_is(real_directory: Path) -> None:
    with CheckpointManager(real_directory) as manager:
        calls = _removal(manager, real_directory)

    assert "rename a.json" not in calls
    assert calls[-1] == "fsync ."
