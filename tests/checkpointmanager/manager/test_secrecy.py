"""Data never appears in a repr, an error, an event or a log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointmanager import CheckpointError, CheckpointManager, Event, MemoryStore, Schema

from ..damage import flip, ruin
from ..leases import LEASES, Lease

SECRET = "s3cr3t-t0ken"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[list[object]]:
    """Everything that anybody gets to see; checked at the end."""
    seen: list[object] = []
    with caplog.at_level(logging.DEBUG):
        yield seen
    for thing in seen:
        text = f"{thing!r} {thing!s}"
        if isinstance(thing, BaseException):
            text += "".join(traceback.format_exception_only(thing)) + repr(vars(thing))
        assert SECRET not in text
    assert len(seen) > 1
    assert SECRET not in caplog.text
    assert all(SECRET not in repr(vars(record)) for record in caplog.records)


def attempt(told: list[object], action: Any, *arguments: Any, **options: Any) -> None:
    try:
        told.append(action(*arguments, **options))
    except CheckpointError as error:
        told.append(error)


def test_through_a_whole_life(directory: Path, told: list[object]) -> None:
    def listen(event: Event) -> None:
        told.append(event)

    secret = Lease(SECRET, 1, [SECRET])
    with CheckpointManager(directory, LEASES, on_event=listen) as manager:
        told.append(manager)
        attempt(told, manager.create_checkpoint, "a", secret)
        attempt(told, manager.create_checkpoint, "a", Lease(SECRET, 2))
        attempt(told, manager.get_checkpoint, "a")
        attempt(told, manager.load)
        attempt(told, manager.batch)
        for hurt in (flip, ruin, flip):
            hurt(directory / "a.json")
            attempt(told, manager.get_checkpoint, "a")
            attempt(told, manager.load)
            attempt(told, manager.verify)
            attempt(told, manager.recover_checkpoint, "a")
            attempt(told, manager.recover_checkpoint, "a", rollback=True)
        attempt(told, manager.previous_checkpoint, "a")


@pytest.mark.parametrize("value", [{"holder": SECRET, "seconds": SECRET}, SECRET, [SECRET], {SECRET: 1}])
def test_of_the_wrong_shape(told: list[object], value: Any) -> None:
    store = MemoryStore()
    CheckpointManager(store, Schema("Lease")).create_checkpoint("a", value)
    manager = CheckpointManager(store, LEASES, on_event=told.append)

    attempt(told, manager.get_checkpoint, "a")
    attempt(told, manager.load)


@pytest.mark.parametrize("value", [Lease(SECRET, 2**70), Lease("a", SECRET), {SECRET: SECRET}])  # type: ignore[arg-type]
def test_that_cannot_be_stored(told: list[object], value: Any) -> None:
    manager = CheckpointManager(MemoryStore(), LEASES)

    attempt(told, manager.create_checkpoint, "a", value)
    attempt(told, manager.create_checkpoint, "a", value, overwrite=False)
