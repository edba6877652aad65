"""A folder in a checkpoint's place, and the power fails while it is replaced: damage or the new value, never nothing.

The model does not cover that the folder itself is not lost: moving it to another directory is two changes in the model,
and one in file systems. The kills in tests/checkpointmanager check it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager, Outcome
from checkpointmanager._filestore import folder
from checkpointmanager.testing import Crash, acknowledge, damage, every_crash

from .ledger import DAMAGED, Manager, folder_of, value_of
from .scenarios import new, updated


def blocked(directory: Path) -> Manager:
    updated(directory).close()
    damage.replace_by_directory(folder_of(directory), "a")
    return new(directory)


def create(manager: Manager) -> None:
    manager.create_checkpoint("a", 3)
    acknowledge(3)


def roll_back(manager: Manager) -> None:
    manager.recover_checkpoint("a", rollback=True)
    acknowledge(1)


@pytest.mark.parametrize("exchanged", [True, False], ids=["exchanged", "in steps"])
@pytest.mark.parametrize(("act", "value"), [(create, 3), (roll_back, 1)], ids=["create", "rollback"])
def test_the_previous_generation_is_there_until_the_new_one_is(
    act: Callable[[Manager], None], value: int, exchanged: bool
) -> None:
    refused: Any = mock.patch.object(folder, "exchange", side_effect=OSError(errno.EINVAL, "Invalid argument"))

    def recorded(manager: Manager) -> None:
        with nullcontext() if exchanged else refused:
            act(manager)

    def check(crash: Crash) -> None:
        with CheckpointManager[Any](folder_of(crash.directory)) as manager:
            found = value_of(manager, "a")
            assert found == value or (found == DAMAGED and value not in crash.acknowledged)
            if found == DAMAGED:
                assert manager.recover_checkpoint("a", rollback=True).outcome is Outcome.ROLLED_BACK
                assert value_of(manager, "a") == 1

    crashes = every_crash(recorded, setup=blocked).check(check)
    print(f"{crashes.states} states")
    assert crashes.states >= 20
    assert crashes.left_out == 0
