"""Shows from outside whether a write reused a spare: if so, no file is created and the directory is not synced."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from checkpointmanager import CheckpointManager
from checkpointmanager._filestore import system

Manager = CheckpointManager[Any]


def with_spares(directory: Path, count: int = 1, **options: Any) -> Manager:
    """A manager with at least `count` free spares, and a key "a" that it has written itself."""
    manager: Manager = CheckpointManager(directory, **options)
    while free_in(manager) < count:
        grow(manager)
    return manager


def grow(manager: Manager) -> None:
    """Add one spare, and free all."""
    keys = [f"grown-{number}" for number in range(2)]
    with manager.batch() as batch:
        for key in ("a", *keys):
            batch.create_checkpoint(key, os.urandom(4).hex())


def free_in(manager: Manager) -> int:
    spares = manager._store._spares  # type: ignore[attr-defined]
    spares._settle()
    return sum(map(len, spares._free.values()))


def put(manager: Manager, value: object, key: str = "a") -> Callable[[], object]:
    return lambda: manager.create_checkpoint(key, value)


def previous_of(manager: Manager, key: str = "a") -> object:
    found = manager.previous_checkpoint(key)
    return found.data if found else None


def spares_in(directory: Path) -> dict[str, int]:
    """The names of the spares, with their inodes."""
    return {name: os.lstat(directory / name).st_ino for name in os.listdir(directory) if name.startswith(".spare-")}


def inode_of(path: Path) -> int:
    return os.lstat(path).st_ino if os.path.lexists(path) else 0


def goes_over_a_spare(directory: Path, write: Callable[[], object], key: str = "a") -> bool:
    """Write, and say whether the new generation is in a former spare, and the old generations moved on."""
    spares = spares_in(directory)
    current, previous = inode_of(directory / f"{key}.json"), inode_of(directory / f".previous-{key}")
    write()
    moved = inode_of(directory / f".previous-{key}") == current and previous in (0, *spares_in(directory).values())
    return moved and inode_of(directory / f"{key}.json") in spares.values()


def is_possible_in(folder: Path) -> bool:
    """False where the file system has no leases, or cannot exchange names: then there is nothing to test."""
    with tempfile.TemporaryDirectory(dir=folder) as probe:
        for name in ("one", "other"):
            Path(probe, name).touch()
        file, directory = os.open(Path(probe, "one"), os.O_WRONLY), os.open(probe, os.O_RDONLY)
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            system.exchange(directory, "one", "other")
        except OSError:
            return False
        finally:
            os.close(file)
            os.close(directory)
    return True


def skip_unless_possible_in(folder: Path) -> None:
    if not is_possible_in(folder):
        pytest.skip("this file system has no leases, or cannot exchange names")


@contextmanager
def kept_order(kept: bool) -> Iterator[None]:
    """Inside the block, the file system counts as one that makes names durable in order, or as one that does not."""
    with mock.patch("checkpointmanager._filestore.directory.keeps_order", return_value=kept):
        yield
