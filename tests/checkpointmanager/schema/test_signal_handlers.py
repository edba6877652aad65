"""What a signal handler raises while data is encoded or decoded reaches the caller as it is.

The handler raises at every place where Python runs one, one place at a time, also inside migrations and classes.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial
from types import FrameType
from typing import Any
from uuid import UUID

import orjson
import pytest

from checkpointmanager import CheckpointManager, MemoryStore, Schema, SchemaMismatch, UnstorableValue
from checkpointmanager._schema import Misfit

from ..signals import everywhere


class Colour(Enum):
    RED = "red"


def slowly(value: Any) -> Any:
    """Code of a program, with places of its own for a handler."""
    return sorted([str(value), str(value)]) and value


def tomorrow() -> datetime:
    return datetime(2027, 1, 1)


@dataclass(frozen=True)
class Device:
    name: str

    def __post_init__(self) -> None:
        slowly(self.name)

    def __hash__(self) -> int:
        return hash(slowly(self.name))


@dataclass(frozen=True, slots=True)
class Lease:
    holder: str
    uid: UUID
    colour: Colour
    devices: frozenset[Device] = frozenset()
    ports: dict[int, tuple[str, int]] = field(default_factory=dict)
    until: datetime = field(default_factory=tomorrow)


PLAIN = {
    "holder": "node-a",
    "uid": "12345678-1234-5678-1234-567812345678",
    "colour": "red",
    "devices": [{"name": "eth1"}, {"name": "eth2"}],
    "ports": {"80": ["http", 1]},
}
GOOD = orjson.dumps(PLAIN | {"until": "2027-01-01T00:00:00"})
UNKNOWN = orjson.dumps(PLAIN | {"colours": 2})
WITHOUT_HOLDER = orjson.dumps({"uid": PLAIN["uid"]})
LEASE = Schema("Lease", 2, type=Lease, migrations={1: slowly})
PAIR: Schema[Any] = Schema("Lease", 2, encode=slowly, decode=slowly)


def decoding(schema: Schema[Any], data: bytes, version: int) -> Callable[[], object]:
    def decode() -> None:
        with suppress(Misfit):  # which shows in the handler's exception being lost
            schema.decode(data, version, 1)

    return decode


def encoding(schema: Schema[Any], data: bytes) -> Callable[[], object]:
    return partial(schema.encode, *schema.decode(data, 2, 1))


def loading() -> Callable[[], object]:
    store = MemoryStore()
    with CheckpointManager(store, Schema("Lease")) as manager:
        for key in ("a", "b"):  # both good: nothing is logged, and logging swallows what is raised inside it
            manager.create_checkpoint(key, PLAIN)
    return CheckpointManager(store, LEASE).load


WORK: dict[str, Callable[[], object]] = {
    "a file of this version": decoding(LEASE, GOOD, 2),
    "a file that lacks a field": decoding(LEASE, orjson.dumps(PLAIN), 2),
    "a file with an unknown field": decoding(LEASE, UNKNOWN, 2),
    "a file of a newer version": decoding(LEASE, UNKNOWN, 3),
    "a file that does not fit": decoding(LEASE, WITHOUT_HOLDER, 2),
    "a migration": decoding(LEASE, GOOD, 1),
    "decode=": decoding(PAIR, GOOD, 2),
    "decode= and encode=": decoding(PAIR, GOOD, 3),
    "loading a store": loading(),
    "encoding": encoding(LEASE, UNKNOWN),
    "encoding with encode=": encoding(PAIR, UNKNOWN),
}
# Errors that some step of the conversion raises by itself, and turns into one of ours.
OWN = [RecursionError, ValueError, KeyError, TypeError, orjson.JSONDecodeError]
CASES = [
    *((name, TimeoutError) for name in WORK),
    *((name, kind) for kind in OWN for name in ("a file of this version", "decode=", "encoding")),
]


def error_of(kind: type[Exception]) -> Exception:
    """An error of a kind, as a subclass: since 3.14 Python itself replaces a plain TypeError that a hash raises."""
    alarm: type[Exception] = type("Alarm", (kind,), {})
    return alarm("alarm", "", 0) if kind is orjson.JSONDecodeError else alarm("alarm")


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_it_comes_out_untouched_at_every_place(name: str, kind: type[Exception]) -> None:
    assert everywhere(lambda: WORK[name], kinds=[partial(error_of, kind)]) > 10


class AnObject:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    def method(self, *given: Any) -> None:
        self(*given)


HANDLERS: dict[str, Callable[[int, FrameType | None], object]] = {
    "a function": AnObject.__call__.__get__(AnObject()),
    "an object": AnObject(),
    "a method that takes anything": AnObject().method,
    "a partial": partial(AnObject.__call__, AnObject()),
    "a lambda": lambda number, _: AnObject()(number, None),
}


@pytest.mark.parametrize("name", HANDLERS)
def test_every_form_of_a_handler_is_recognised(name: str) -> None:
    def migration(plain: Any) -> Any:
        signal.raise_signal(signal.SIGALRM)
        return plain

    store = MemoryStore()
    CheckpointManager(store, Schema("Lease")).create_checkpoint("a", {})
    before = signal.signal(signal.SIGALRM, HANDLERS[name])
    try:
        with pytest.raises(TimeoutError):
            CheckpointManager(store, Schema("Lease", 2, migrations={1: migration})).load()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_the_same_error_of_the_program_itself_is_still_a_mismatch() -> None:
    def migration(plain: Any) -> Any:
        raise TimeoutError

    store = MemoryStore()
    CheckpointManager(store, Schema("Lease")).create_checkpoint("a", {})
    loaded = CheckpointManager(store, Schema("Lease", 2, migrations={1: migration})).load()
    assert isinstance(loaded.problems["a"], SchemaMismatch)
    assert isinstance(loaded.problems["a"].__cause__, TimeoutError)
    with pytest.raises(UnstorableValue):
        LEASE.encode("no lease")  # type: ignore[arg-type]
