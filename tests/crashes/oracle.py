"""What may be found: a scenario records what it begins and how that ends, and `check` verifies every disk against it.

A state of all keys is one value, so half of a transaction is noticed although each half alone would be fine. Nothing
here knows how the store does it: only managers are used, with and without an owner.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpointmanager import (
    CheckpointError,
    CheckpointManager,
    CheckpointNotFound,
    CheckpointWriteFailed,
    CorruptCheckpoint,
)
from checkpointmanager.testing import Crash, Fault, acknowledge

FOLDER = "claims"
KEYS = ("a", "b", "c", "d")
GONE = "(gone)"
DAMAGED = "(damaged)"

Manager = CheckpointManager[Any]
Changes = tuple[tuple[str, object], ...]
Values = frozenset[tuple[str, object]]  # of all keys that exist


@dataclass(frozen=True)
class _About:
    changes: Changes


class Begun(_About):
    """From now on all of these changes may be found."""


class Done(_About):
    """All of these changes are found from now on."""


class Failed(_About):
    """None of these changes is found: the failure was certain."""


@dataclass(frozen=True)
class Served:
    """An owner has shown this after a restart: from now on it is found, and nothing older."""

    values: Values


@dataclass(frozen=True)
class Broken:
    """The checkpoint was damaged, and holds these bytes."""

    key: str
    blob: bytes = field(repr=False)


def put(manager: Manager, key: str, value: object) -> None:
    with _recorded(((key, value),)):
        manager.create_checkpoint(key, value)


def remove(manager: Manager, key: str) -> None:
    with _recorded(((key, GONE),)):
        manager.remove_checkpoint(key)


def transact(manager: Manager, **changes: object) -> None:
    """GONE stands for a removal."""
    items = tuple(changes.items())
    with _recorded(items), manager.transaction() as transaction:
        _fill(transaction, items)


def batch(manager: Manager, **changes: object) -> None:
    """Each change may be found without the others."""
    singles = [((key, value),) for key, value in changes.items()]
    for single in singles:
        acknowledge(Begun(single))
    with manager.batch() as many:
        _fill(many, changes.items())
    for single in singles:
        acknowledge(Done(single))


def serve(directory: Path, **options: Any) -> None:
    """A restart that shows what it finds."""
    with CheckpointManager(folder_of(directory), **options) as manager:
        acknowledge(Served(values_of(manager)))


def serve_and_write(directory: Path) -> None:
    with CheckpointManager(folder_of(directory)) as manager:
        acknowledge(Served(values_of(manager)))
        put(manager, "a", "written after the restart")


def possible(events: Iterable[Any]) -> set[Values]:
    """Every state in which the keys may be now."""
    now: set[Values] = {frozenset()}
    before: dict[Changes, set[Values]] = {}
    for event in events:
        match event:
            case Begun(changes):
                before[changes] = now
                now = now | {_changed(values, changes) for values in now}
            case Done(changes):
                now = {values for values in now if _has(values, changes)}
            case Failed(changes):
                now = {values for values in now if values in before[changes] or not _has(values, changes)}
            case Served(values):
                now = {values}
            case Broken(key):
                now = {_changed(values, ((key, DAMAGED),)) for values in now}
    return now


def check(after: Crash | Fault) -> None:
    """A reader looks before the owner opens, both find the same, every promise holds, and all keys can be written."""
    expected = possible(after.acknowledged)
    folder = folder_of(after.directory)
    seen = None
    if folder.is_dir():
        with CheckpointManager(folder, read_only=True) as reader:
            seen = values_of(reader)
        assert seen in expected, f"a reader finds {shown(seen)}, which is none of {[*map(shown, expected)]}"
    with CheckpointManager(folder) as manager:
        found = values_of(manager)
        assert seen in (None, found), f"the owner finds {shown(found)}, a reader {shown(seen or found)} before"
        assert found in expected, f"the owner finds {shown(found)}, which is none of {[*map(shown, expected)]}"
        check_evidence(after, dict(found))
        check_previous(manager, after.acknowledged)
        check_life_goes_on(manager)
        check_names(manager)


def check_evidence(after: Crash | Fault, found: dict[str, object]) -> None:
    """Damaged bytes are where they were, or in quarantine."""
    for event in after.acknowledged:
        if not isinstance(event, Broken):
            continue
        if found.get(event.key) == DAMAGED:
            in_place = (folder_of(after.directory) / f"{event.key}.json").read_bytes()
            assert in_place == event.blob, "other damage than before"
        else:
            assert event.blob in quarantined(after.directory), "replaced, and the damaged bytes are lost"


def check_previous(manager: Manager, events: Iterable[Any]) -> None:
    """A previous generation never comes from a checkpoint that was removed before. (An orphan may.)"""
    lifetimes: dict[str, list[object]] = {key: [] for key in KEYS}
    for event in events:
        for key, value in event.changes if isinstance(event, Begun | Done) else ():
            removed = value == GONE and isinstance(event, Done)
            lifetimes[key] = [] if removed else [*lifetimes[key], value]
    for key in manager:
        before = manager.previous_checkpoint(key)
        assert before is None or before.data in lifetimes[key], f"{before} comes from a removed checkpoint"


def check_names(manager: Manager) -> None:
    """After all keys were created and removed, nothing is left of them."""
    left = [name for name in os.listdir(manager.path) if name not in (".lock", ".journal", ".quarantine")]
    assert not left, "files without a checkpoint survived"


def check_life_goes_on(manager: Manager) -> None:
    before = {key: generation_of(manager, key) for key in KEYS}
    with manager.batch() as many:
        _fill(many, [(key, "afterwards") for key in KEYS])
    assert values_of(manager) == {(key, "afterwards") for key in KEYS}
    assert all(generation_of(manager, key) > before[key] for key in KEYS)
    with manager.batch() as many:
        _fill(many, [(key, GONE) for key in KEYS])
    assert not set(manager)


def folder_of(directory: Path) -> Path:
    return directory / FOLDER


def values_of(manager: Manager) -> Values:
    return frozenset((key, value_of(manager, key)) for key in manager)


def value_of(manager: Manager, key: str) -> object:
    try:
        return manager.get_checkpoint(key).data
    except CorruptCheckpoint:
        return DAMAGED
    except CheckpointError as error:
        raise AssertionError(f"{key} is neither found nor reported as damaged: {error}") from error


def generation_of(manager: Manager, key: str) -> int:
    with suppress(CheckpointNotFound, CorruptCheckpoint):
        return manager.get_checkpoint(key).generation
    return 0


def quarantined(directory: Path) -> list[bytes]:
    folder = folder_of(directory) / ".quarantine"
    return [path.read_bytes() for path in folder.iterdir()] if folder.is_dir() else []


def shown(values: Values) -> str:
    return ", ".join(f"{key}={str(value)[:20]}" for key, value in sorted(values, key=str)) or "nothing"


@contextmanager
def _recorded(changes: Changes) -> Iterator[None]:
    """Failures are recorded as the outcome that they claim, and not raised."""
    acknowledge(Begun(changes))
    try:
        yield
    except CheckpointWriteFailed as failure:
        if not failure.in_doubt:
            acknowledge(Failed(changes))
    else:
        acknowledge(Done(changes))


def _fill(target: Any, changes: Iterable[tuple[str, object]]) -> None:
    for key, value in changes:
        if value == GONE:
            target.remove_checkpoint(key)
        else:
            target.create_checkpoint(key, value)


def _changed(values: Values, changes: Changes) -> Values:
    return frozenset((key, value) for key, value in (dict(values) | dict(changes)).items() if value != GONE)


def _has(values: Values, changes: Changes) -> bool:
    return all(dict(values).get(key, GONE) == value for key, value in changes)
