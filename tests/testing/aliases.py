"""A correct agent that holds the functions of `os` in every way Python programs do, and a careless one."""

# ruff: noqa: PLW0108  (each lambda looks its function up when it is called)

from __future__ import annotations

import functools
import os
import os as system
import posix
from collections.abc import Callable
from dataclasses import dataclass
from os import close, fsync, replace, write
from os import fsync as sync_to_disk
from pathlib import Path
from typing import Any, NamedTuple

from checkpointmanager.testing import acknowledge

Sync = Callable[[int], Any]

partly = functools.partial(os.fsync)
table = {"sync": os.fsync}
listed = [os.fsync]


class InClass:
    sync = os.fsync
    static = staticmethod(os.fsync)


class InObject:
    def __init__(self) -> None:
        self.sync = os.fsync


class InSlots:
    __slots__ = ("sync",)

    def __init__(self) -> None:
        self.sync = os.fsync


@dataclass(frozen=True, slots=True)
class InFrozenSlots:
    sync: Sync = os.fsync


@dataclass(frozen=True)
class InDataclass:
    sync: Sync = os.fsync


class InTuple(NamedTuple):
    sync: Sync
    replace: Callable[..., None]


def by_default(descriptor: int, sync: Sync = os.fsync) -> None:
    sync(descriptor)


def by_keyword(descriptor: int, *, sync: Sync = os.fsync) -> None:
    sync(descriptor)


def enclosed() -> Sync:
    sync = os.fsync
    return lambda descriptor: sync(descriptor)


@functools.wraps(os.fsync)
def decorated(descriptor: int) -> None:
    decorated.__wrapped__(descriptor)


in_object, in_slots, in_frozen_slots, in_dataclass = InObject(), InSlots(), InFrozenSlots(), InDataclass()

WAYS: dict[str, Sync] = {
    "os.fsync": lambda descriptor: os.fsync(descriptor),
    "import os as system": lambda descriptor: system.fsync(descriptor),
    "posix.fsync": lambda descriptor: posix.fsync(descriptor),  # type: ignore[attr-defined, unused-ignore]
    "from os import fsync": lambda descriptor: fsync(descriptor),
    "from os import fsync as sync_to_disk": lambda descriptor: sync_to_disk(descriptor),
    "a keyword": lambda descriptor: os.fsync(fd=descriptor),
    "partial": lambda descriptor: partly(descriptor),
    "a dict": lambda descriptor: table["sync"](descriptor),
    "a list": lambda descriptor: listed[0](descriptor),
    "a class": lambda descriptor: InClass().sync(descriptor),  # type: ignore[call-arg, misc]
    "a static method": lambda descriptor: InClass.static(descriptor),
    "an object": lambda descriptor: in_object.sync(descriptor),
    "an object with slots": lambda descriptor: in_slots.sync(descriptor),
    "a frozen dataclass with slots": lambda descriptor: in_frozen_slots.sync(descriptor),
    "a frozen dataclass": lambda descriptor: in_dataclass.sync(descriptor),
    "a default argument": by_default,
    "a keyword's default": by_keyword,
    "a closure": enclosed(),
    "a decorator": decorated,
}


def save(directory: Path, sync: Sync) -> None:
    """Correct, if `sync` syncs."""
    descriptor = os.open(directory / "temp", os.O_WRONLY | os.O_CREAT)
    write(descriptor, b"new")
    sync(descriptor)
    close(descriptor)
    replace(directory / "temp", directory / "file")
    folder = os.open(directory, os.O_RDONLY)
    sync(folder)
    close(folder)
    acknowledge("new")


def save_carelessly(directory: Path) -> None:
    """Takes no notice if the file cannot be synced or renamed."""
    descriptor = os.open(directory / "temp", os.O_WRONLY | os.O_CREAT)
    write(descriptor, b"new")
    close(descriptor)
    try:
        replace(directory / "temp", directory / "file")
        folder = os.open(directory, os.O_RDONLY)
        fsync(folder)
        close(folder)
    except OSError:
        pass
    acknowledge("new")
