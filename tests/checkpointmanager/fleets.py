"""A state that three versions of a program read, each knowing a little more of it than the one before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from checkpointmanager import (
    CheckpointManager,
    MemoryStore,
    Schema,
)

T = TypeVar("T")


@dataclass
class Device1:
    id: str


@dataclass
class Fleet1:
    name: str
    first: Device1 | None = None
    devices: list[Device1] = field(default_factory=list)
    spares: tuple[Device1, ...] = ()
    by_name: dict[str, Device1] = field(default_factory=dict)


@dataclass
class Device2(Device1):
    pool: str = "-"


@dataclass
class Fleet2(Fleet1):
    first: Device2 | None = None
    devices: list[Device2] = field(default_factory=list)  # type: ignore[assignment]
    spares: tuple[Device2, ...] = ()
    by_name: dict[str, Device2] = field(default_factory=dict)  # type: ignore[assignment]
    zone: str = "-"


@dataclass
class Device3(Device2):
    share: dict[str, int] = field(default_factory=dict)


@dataclass
class Fleet3(Fleet2):
    first: Device3 | None = None
    devices: list[Device3] = field(default_factory=list)  # type: ignore[assignment]
    spares: tuple[Device3, ...] = ()
    by_name: dict[str, Device3] = field(default_factory=dict)  # type: ignore[assignment]
    owners: list[str] = field(default_factory=list)


V1 = Schema("Fleet", 1, type=Fleet1)
V2 = Schema("Fleet", 2, readable_by=1, type=Fleet2)
V3 = Schema("Fleet", 3, readable_by=1, type=Fleet3)


def device(name: str) -> Device3:
    return Device3(name, f"pool of {name}", {name: 1})


FLEET = Fleet3(
    "fleet",
    device("f"),
    [device("a"), device("b"), device("c")],
    (device("s"), device("t")),
    {"x": device("x"), "y": device("y")},
    "zone",
    ["me", "you"],
)


def same(value: T) -> T:
    return value


def written(schema: Schema[Any], value: Any) -> MemoryStore:
    store = MemoryStore()
    CheckpointManager(store, schema).create_checkpoint("k", value)
    return store


def updated(store: MemoryStore, schema: Schema[T], change: Callable[[T], T]) -> None:
    CheckpointManager(store, schema).update_checkpoint("k", change)


def read(store: MemoryStore, schema: Schema[T]) -> T:
    return CheckpointManager(store, schema).get_checkpoint("k").data
