"""Records what a scenario begins, what has been acknowledged and what a reader has seen.

This determines what a power loss may leave, and `check` verifies it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from checkpointmanager import CheckpointError, CheckpointManager, CheckpointNotFound, CorruptCheckpoint
from checkpointmanager._filestore import marker
from checkpointmanager.testing import Crash, Fault, acknowledge

FOLDER = "claims"
GONE = "(gone)"
DAMAGED = "(damaged)"

Manager = CheckpointManager[Any]


@dataclass(frozen=True)
class Began:
    """From now on the value may be found."""

    key: str
    value: object


@dataclass(frozen=True)
class Done:
    """Acknowledged, or seen by a reader after a restart: from now on this value is found, or a newer one."""

    key: str
    value: object


@dataclass(frozen=True)
class Broken:
    """The checkpoint was damaged, and holds these bytes."""

    key: str
    blob: bytes = field(repr=False)


@dataclass
class Outlook:
    """What may be found of one key."""

    now: list[object] = field(default_factory=lambda: [GONE])
    lifetime: list[object] = field(default_factory=list)  # every value since it was last created
    damaged: bytes | None = None

    def update(self, event: Began | Done | Broken) -> None:
        if isinstance(event, Broken):
            self.now = [DAMAGED]
            self.damaged = event.blob
            return
        self.now = [event.value] if isinstance(event, Done) else [*self.now, event.value]
        self.lifetime = [] if self.now == [GONE] else [*self.lifetime, event.value]


def put(manager: Manager, key: str, value: object) -> None:
    acknowledge(Began(key, value))
    manager.create_checkpoint(key, value)
    acknowledge(Done(key, value))


def remove(manager: Manager, key: str) -> None:
    acknowledge(Began(key, GONE))
    manager.remove_checkpoint(key)
    acknowledge(Done(key, GONE))


def folder_of(directory: Path) -> Path:
    return directory / FOLDER


def outlooks(acknowledged: Iterable[Any]) -> dict[str, Outlook]:
    """Events come one by one, or several at once for a batch."""
    found: dict[str, Outlook] = {}
    for each in acknowledged:
        for event in each if isinstance(each, tuple) else (each,):
            found.setdefault(event.key, Outlook()).update(event)
    return found


def check(after: Crash | Fault) -> None:
    """The restart: every promise holds, and all keys can be written again."""
    expected = outlooks(after.acknowledged)
    check_reader(after.directory, expected)
    with CheckpointManager(folder_of(after.directory)) as manager:
        check_names(manager, after.directory)
        assert not [name for name in os.listdir(manager.path) if name.startswith(".spare")], "a spare survived"
        for key, outlook in expected.items():
            check_key(manager, after.directory, key, outlook)
        assert set(manager) <= expected.keys(), "a checkpoint that was never written"
        for key in expected:
            check_life_goes_on(manager, key)
        check_names(manager, after.directory)


def check_reader(directory: Path, expected: dict[str, Outlook]) -> None:
    """A reader sees the same, although no owner has recovered the directory yet."""
    if not folder_of(directory).is_dir():
        return
    with CheckpointManager[Any](folder_of(directory), read_only=True) as reader:
        for key, outlook in expected.items():
            found = value_of(reader, key)
            assert found in outlook.now, f"a reader sees {key} as {found}, but may only see one of {outlook.now}"


def check_names(manager: Manager, directory: Path) -> None:
    names = os.listdir(folder_of(directory))
    assert not [name for name in names if name.startswith(".tmp-")], "a temp file survived"
    previous = {name.removeprefix(".previous-") for name in names if name.startswith(".previous-")}
    assert previous <= set(manager), "a previous generation without a checkpoint"


def check_key(manager: Manager, directory: Path, key: str, outlook: Outlook) -> None:
    found = value_of(manager, key)
    assert found in outlook.now, f"{key} is {found}, but may only be one of {outlook.now}"
    before = manager.previous_checkpoint(key)
    assert before is None or before.data in outlook.lifetime, f"{before} comes from a removed checkpoint"
    if outlook.damaged is None:
        return
    if found == DAMAGED:
        assert (folder_of(directory) / f"{key}.json").read_bytes() == outlook.damaged, "other damage than before"
    else:
        assert outlook.damaged in quarantined(directory), "replaced, and the damaged bytes are lost"


def check_life_goes_on(manager: Manager, key: str) -> None:
    generation = 0
    with suppress(CheckpointNotFound, CorruptCheckpoint):
        generation = manager.get_checkpoint(key).generation
    assert manager.create_checkpoint(key, "afterwards").generation > generation
    assert manager.get_checkpoint(key).data == "afterwards"
    manager.remove_checkpoint(key)
    assert key not in manager


def value_of(manager: Manager, key: str) -> object:
    if key not in manager:
        return GONE
    try:
        return manager.get_checkpoint(key).data
    except CorruptCheckpoint:
        return DAMAGED
    except CheckpointError as error:
        raise AssertionError(f"{key} is neither found nor reported as damaged: {error}") from error


def quarantined(directory: Path) -> list[bytes]:
    folder = folder_of(directory) / ".quarantine"
    return [path.read_bytes() for path in folder.iterdir()] if folder.is_dir() else []


def rebooted(act: Callable[[Path], None]) -> Callable[[Path], None]:
    """After a power loss the boot is another one, and names are what the disk holds."""

    def act_then(directory: Path) -> None:
        with mock.patch.object(marker, "boot_id", return_value="another boot"):
            act(directory)

    return act_then


def come_back(directory: Path) -> None:
    """A restart that reads what it finds, and writes; what it has shown must not be lost."""
    with CheckpointManager(folder_of(directory)) as manager:
        acknowledge(tuple(Done(key, value_of(manager, key)) for key in ("a", "b", "c")))
        put(manager, "a", "written after the restart")
