"""Data never appears in a repr, an error, an event or a log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from checkpointmanager import (
    CheckpointError,
    CheckpointManager,
    Event,
    MemoryStore,
    Put,
    Replaces,
    Schema,
    UnknownFields,
    unknown_fields,
)
from checkpointmanager.format import Change, Record
from checkpointmanager.testing import damage

from ..leases import LEASES, Lease

SECRET = "s3cr3t-t0ken"


@pytest.fixture
def visible(caplog: pytest.LogCaptureFixture) -> Iterator[list[object]]:
    """Everything that users, logs and callbacks get to see; checked at the end."""
    seen: list[object] = []
    with caplog.at_level(logging.DEBUG):
        yield seen
    for thing in seen:
        text = f"{thing!r} {thing!s}"
        if isinstance(thing, BaseException):
            shown = {name: value for name, value in vars(thing).items() if name != "unverified_data"}  # it is data
            text += "".join(traceback.format_exception_only(thing)) + repr(shown)
        assert SECRET not in text
    assert len(seen) > 1
    assert SECRET not in caplog.text
    assert all(SECRET not in repr(vars(record)) for record in caplog.records)


def attempt(visible: list[object], action: Any, *arguments: Any, **options: Any) -> None:
    try:
        visible.append(action(*arguments, **options))
    except CheckpointError as error:
        visible.append(error)


def test_through_a_whole_life(directory: Path, visible: list[object]) -> None:
    def listen(event: Event) -> None:
        visible.append(event)

    secret = Lease(SECRET, 1, [SECRET])
    with CheckpointManager(directory, LEASES, on_event=listen) as manager:
        visible.append(manager)
        attempt(visible, manager.create_checkpoint, "a", secret)
        attempt(visible, manager.create_checkpoint, "a", Lease(SECRET, 2))
        attempt(visible, manager.get_checkpoint, "a")
        attempt(visible, manager.load)
        transaction = manager.transaction()
        transaction.create_checkpoint("a", secret)
        visible.append(transaction)
        for hurt in (damage.flip_bit, damage.ruin, damage.flip_bit):
            hurt(directory, "a")
            attempt(visible, manager.get_checkpoint, "a")
            attempt(visible, manager.load)
            attempt(visible, manager.verify)
            attempt(visible, manager.plan_recovery, "a")
            attempt(visible, manager.recover_checkpoint, "a")
            attempt(visible, manager.recover_checkpoint, "a", rollback=True)
        attempt(visible, manager.previous_checkpoint, "a")


@pytest.mark.parametrize("value", [{"holder": SECRET, "seconds": SECRET}, SECRET, [SECRET], {SECRET: 1}])
def test_of_the_wrong_shape(visible: list[object], value: Any) -> None:
    store = MemoryStore()
    CheckpointManager(store, Schema("Lease")).create_checkpoint("a", value)
    manager = CheckpointManager(store, LEASES, on_event=visible.append)

    attempt(visible, manager.get_checkpoint, "a")
    attempt(visible, manager.load)


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("cls", [int, UUID, Colour, datetime, bytes, IPv4Address, Lease], ids=lambda cls: cls.__name__)
def test_text_that_a_type_does_not_take(visible: list[object], cls: type, version: int) -> None:
    """Some of these types quote it in the error that they raise. In a newer file it is a CheckpointTooNew."""
    store = MemoryStore()
    CheckpointManager(store, Schema("Any", version, readable_by=1)).create_checkpoint("a", [SECRET])
    manager = CheckpointManager(store, Schema("Any", type=list[cls]), on_event=visible.append)  # type: ignore[valid-type]

    attempt(visible, manager.get_checkpoint, "a")
    attempt(visible, manager.load)


@dataclass
class Sessions:
    """The keys of dicts are data, like the tokens here; the names of fields belong to the program."""

    tokens: dict[str, Any] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    by_kind: dict[str, dict[str, int]] = field(default_factory=dict)
    unknown: UnknownFields = unknown_fields()


SESSIONS = Schema("Sessions", type=Sessions)
KEYED: list[tuple[Any, str]] = [
    ({"tokens": {SECRET: 1}, "leases": {SECRET: {"holder": 7}}}, "$.leases[*].holder"),
    ({"leases": {SECRET: {"holder": "a", "tags": ["a", 1]}}}, "$.leases[*].tags[1]"),
    ({"by_kind": {SECRET: {SECRET: "1"}}}, "$.by_kind[*][*]"),
    ({"by_kind": {SECRET: []}}, "$.by_kind[*]"),
]


@pytest.mark.parametrize(("value", "where"), KEYED, ids=[where for _, where in KEYED])
def test_the_keys_of_dicts_that_are_read(visible: list[object], value: Any, where: str) -> None:
    store = MemoryStore()
    CheckpointManager(store, Schema("Sessions")).create_checkpoint("a", value)
    manager = CheckpointManager(store, SESSIONS, on_event=visible.append)

    attempt(visible, manager.get_checkpoint, "a")
    attempt(visible, manager.load)
    attempt(visible, manager.recover_checkpoint, "a")

    assert where in str(visible)


TOO_LARGE = 2**64
UNWRITTEN: list[tuple[Sessions, str]] = [
    (Sessions({SECRET: {SECRET: {1}}}), "$.tokens[*][*]"),
    (Sessions({SECRET: [{SECRET: TOO_LARGE}]}), "$.tokens[*][0][*]"),
    (Sessions(leases={SECRET: Lease("a", TOO_LARGE)}), "$.leases[*].seconds"),
    (Sessions(leases={SECRET: Lease("\ud800")}), "$.leases[*].holder"),
    (Sessions(leases={SECRET: Lease(7)}), "$.leases[*].holder"),  # type: ignore[arg-type]
    (Sessions(by_kind={SECRET: {SECRET: TOO_LARGE}}), "$.by_kind[*][*]"),
    (Sessions(unknown=UnknownFields({SECRET: TOO_LARGE})), "$[*]"),
    (Sessions(unknown=UnknownFields({SECRET: {1}})), "$.unknown[*]"),
]


@pytest.mark.parametrize(("value", "where"), UNWRITTEN)
def test_the_keys_of_dicts_that_cannot_be_stored(visible: list[object], value: Sessions, where: str) -> None:
    manager = CheckpointManager(MemoryStore(), SESSIONS)

    attempt(visible, manager.create_checkpoint, "a", value)
    attempt(visible, manager.create_checkpoint, "b", value)

    assert [getattr(error, "where", None) for error in visible] == [where, where]


def test_the_keys_of_what_encode_returns(visible: list[object]) -> None:
    foreign: Schema[Any] = Schema("Sessions", encode=lambda value: value, decode=dict)
    manager = CheckpointManager(MemoryStore(), foreign)

    for value in ({SECRET: {1}}, {SECRET: TOO_LARGE}, {SECRET: {SECRET + "\ud800": 1}}):
        attempt(visible, manager.create_checkpoint, "a", value)


def test_in_what_is_handed_from_room_to_room(visible: list[object]) -> None:
    schema = Schema("Lease", type=Lease)
    visible.append(schema.encode(Lease(SECRET)))
    _, unknowns = schema.decode(orjson.dumps({"holder": SECRET, SECRET: SECRET}), 2, 1)
    visible.append(unknowns)
    change = Change("a", 1, SECRET.encode())
    visible += [change, Record((change,), SECRET.encode())]
    visible.append(Put("a", SECRET.encode(), 1, Replaces.ABSENT))


@pytest.mark.parametrize("value", [Lease(SECRET, 2**70), Lease("a", SECRET), {SECRET: SECRET}])  # type: ignore[arg-type]
def test_that_cannot_be_stored(visible: list[object], value: Any) -> None:
    manager = CheckpointManager(MemoryStore(), LEASES)

    attempt(visible, manager.create_checkpoint, "a", value)
    attempt(visible, manager.create_checkpoint, "a", value, overwrite=False)
