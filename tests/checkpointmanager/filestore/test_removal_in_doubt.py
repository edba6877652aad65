"""A removal whose sync failed is made once more when it is repeated: another sync alone would not bring it back."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, CheckpointWriteFailed

from ..oscalls import watched


def _removal(manager: CheckpointManager[Any], key: str) -> list[str]:
    """The calls of one removal that change or sync a name."""
    calls: list[str] = []

    def note(call: str, arguments: tuple[Any, ...]) -> None:
        if call in ("rename", "unlink", "fsync"):
            calls.append(f"{call} {arguments[1] if call == 'rename' else arguments[0]}")

    with watched(note):
        manager.remove_checkpoint(key)
    return [call.split()[0] if call.startswith("fsync") else call for call in calls]


def test_the_name_changes_once_more_before_it_is_synced(real_directory: Path) -> None:
    with CheckpointManager(real_directory) as manager:
        manager.create_checkpoint("a", 1)
        failing = mock.patch.object(os, "fsync", side_effect=OSError(errno.EIO, "I/O error"))
        with failing, pytest.raises(CheckpointWriteFailed) as failure:
            manager.remove_checkpoint("a")
        assert failure.value.in_doubt

        calls = _removal(manager, "a")

    again = calls[calls.index("rename a.json") :]
    assert again.index("unlink a.json") < again.index("fsync")
    assert not [name for name in os.listdir(real_directory) if name.startswith((".tmp-", "a"))]


def test_without_a_doubt_a_missing_name_is_left_as_it_is(real_directory: Path) -> None:
    with CheckpointManager(real_directory) as manager:
        calls = _removal(manager, "a")

    assert "rename a.json" not in calls
    assert calls[-1] == "fsync"
