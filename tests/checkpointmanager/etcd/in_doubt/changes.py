"""Every kind of change, the result of each, and the fates that its request may have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from checkpointmanager import CheckpointManager

from ..line import Fate

Manager = CheckpointManager[Any]
Change = Callable[[Manager], None]
Found = dict[str, tuple[int | None, int | None]]  # the current and the previous value of each key


def create(manager: Manager) -> None:
    manager.create_checkpoint("new", 1)


def overwrite(manager: Manager) -> None:
    manager.create_checkpoint("a", 2)


def update(manager: Manager) -> None:
    manager.update_checkpoint("a", lambda number: number + 1)


def remove(manager: Manager) -> None:
    manager.remove_checkpoint("a")


def batch(manager: Manager) -> None:
    with manager.batch() as batch:
        batch.create_checkpoint("a", 2)
        batch.create_checkpoint("new", 1)
        batch.remove_checkpoint("b")


def transaction(manager: Manager) -> None:
    with manager.transaction() as transaction:
        transaction.update_checkpoint("a", lambda number: number + 1)
        transaction.create_checkpoint("new", 1)
        transaction.remove_checkpoint("b")


def replace_damaged(manager: Manager) -> None:
    manager.create_checkpoint("damaged", 5)


# What each change leaves in the keys that it changes.
CHANGES: dict[Change, Found] = {
    create: {"new": (1, None)},
    overwrite: {"a": (2, 1)},
    update: {"a": (2, 1)},
    remove: {"a": (None, None)},
    batch: {"a": (2, 1), "new": (1, None), "b": (None, None)},
    transaction: {"a": (2, 1), "new": (1, None), "b": (None, None)},
    replace_damaged: {"damaged": (5, None)},
}
changes = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
fates = pytest.mark.parametrize("fate", [Fate.ANSWER_LOST, Fate.LOST, Fate.LATE], ids=lambda fate: fate.name)


def found(manager: Manager, keys: Iterable[str]) -> Found:
    def current(key: str) -> int | None:
        checkpoint = manager.get_checkpoint(key, None)
        return checkpoint.data if checkpoint else None

    def previous(key: str) -> int | None:
        checkpoint = manager.previous_checkpoint(key)
        return checkpoint.data if checkpoint else None

    return {key: (current(key), previous(key)) for key in keys}
