"""What several keys may hold together: a scenario records what it begins and how it ends, and `check` verifies it.

The ledger next door knows what each key may be on its own. Here a state of all keys is one value, so that half of a
transaction is noticed although each half alone would be fine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpointmanager import CheckpointManager, CheckpointWriteFailed, TransactionFailed
from checkpointmanager.testing import Crash, Fault, acknowledge

from . import ledger
from .ledger import GONE, Manager, folder_of, value_of

KEYS = ("a", "b", "c", "d")
Values = frozenset[tuple[str, object]]  # of all keys that exist


@dataclass(frozen=True)
class Begin:
    """From now on all of these changes may be found."""

    changes: tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Done:
    """All of these changes are found."""

    changes: tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Failed:
    """None of these changes is found."""

    changes: tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Seen:
    """A reader has seen this after a restart, so no older state may follow."""

    values: Values


def possible(events: Iterable[Any]) -> set[Values]:
    now: set[Values] = {frozenset()}
    before = now
    for event in events:
        if isinstance(event, Seen):
            now = {event.values}
        elif isinstance(event, Begin):
            before, now = now, now | {_changed(values, event.changes) for values in now}
        else:
            now = before if isinstance(event, Failed) else {_changed(values, event.changes) for values in before}
    return now


def transact(manager: Manager, **changes: object) -> None:
    """GONE stands for a removal. Failures are not raised but recorded as the outcome that they claim."""
    items = tuple(changes.items())
    acknowledge(Begin(items))
    try:
        with manager.transaction() as transaction:
            for key, value in items:
                if value == GONE:
                    transaction.remove_checkpoint(key)
                else:
                    transaction.create_checkpoint(key, value)
    except TransactionFailed as failure:
        if failure.committed:
            acknowledge(Done(items))
        elif not failure.in_doubt:
            acknowledge(Failed(items))
    else:
        acknowledge(Done(items))


def put(manager: Manager, key: str, value: object) -> None:
    _one(manager, key, value)


def remove(manager: Manager, key: str) -> None:
    _one(manager, key, GONE)


def show(directory: Path) -> None:
    """A restart that reads what it finds."""
    with CheckpointManager(folder_of(directory)) as manager:
        acknowledge(Seen(values_of(manager)))


def values_of(manager: Manager) -> Values:
    return frozenset((key, value_of(manager, key)) for key in manager)


def previous_in(manager: Manager) -> dict[str, object]:
    found = {key: manager.previous_checkpoint(key) for key in manager}
    return {key: previous and previous.data for key, previous in found.items()}


def check(after: Crash | Fault) -> None:
    """A reader looks before the owner opens, both find the same, and that is all of it or nothing."""
    expected = possible(after.acknowledged)
    folder = folder_of(after.directory)
    with CheckpointManager(folder, read_only=True) as reader:
        seen = values_of(reader)
        before = previous_in(reader)
    assert seen in expected, f"a reader finds {sorted(seen)}, which is none of {[sorted(each) for each in expected]}"
    with CheckpointManager(folder) as manager:
        found = values_of(manager)
        assert found == seen, f"the owner finds {sorted(found)}, a reader {sorted(seen)} before"
        assert found in expected
        assert previous_in(manager) == before, "other previous generations than a reader has found"
        check_previous(manager, after.acknowledged)
        ledger.check_names(manager, after.directory)
        assert ".transaction" not in os.listdir(folder)
        for key in KEYS:
            ledger.check_life_goes_on(manager, key)


def check_previous(manager: Manager, events: Iterable[Any]) -> None:
    """It never comes from a checkpoint that was removed before."""
    lifetimes: dict[str, list[object]] = {key: [] for key in KEYS}
    for event in events:
        if isinstance(event, Begin | Done):
            for key, value in event.changes:
                certain = isinstance(event, Done)
                lifetimes[key] = [] if value == GONE and certain else [*lifetimes[key], value]
    for key in KEYS:
        before = manager.previous_checkpoint(key)
        assert before is None or before.data in lifetimes[key], f"{before} comes from a removed checkpoint"


def _one(manager: Manager, key: str, value: object) -> None:
    acknowledge(Begin(((key, value),)))
    try:
        if value == GONE:
            manager.remove_checkpoint(key)
        else:
            manager.create_checkpoint(key, value)
    except CheckpointWriteFailed as failure:
        if not failure.in_doubt:
            acknowledge(Failed(((key, value),)))
    else:
        acknowledge(Done(((key, value),)))


def _changed(values: Values, changes: Iterable[tuple[str, object]]) -> Values:
    after: Mapping[str, object] = dict(values) | dict(changes)
    return frozenset((key, value) for key, value in after.items() if value != GONE)
