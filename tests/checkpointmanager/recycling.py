"""Whether a write took the recycled way, seen from outside: then two files change names and no third one comes."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from checkpointmanager import CheckpointManager
from checkpointmanager._filestore import system
from checkpointmanager._filestore.recycle import Recycler

Manager = CheckpointManager[Any]


def written_twice(directory: Path) -> Manager:
    """Key "a" has a previous generation, both of this owner, so the next write may recycle."""
    manager: Manager = CheckpointManager(directory)
    manager.create_checkpoint("a", "first")
    manager.create_checkpoint("a", "second")
    return manager


def put(manager: Manager, value: object, key: str = "a") -> Callable[[], object]:
    return lambda: manager.create_checkpoint(key, value)


def previous_of(manager: Manager, key: str = "a") -> object:
    found = manager.previous_checkpoint(key)
    return found.data if found else None


def files_of(directory: Path, key: str = "a") -> tuple[int, int]:
    """The inodes of the current and of the previous generation; 0 where there is none."""
    current, previous = directory / f"{key}.json", directory / f".previous-{key}"
    return _inode_of(current), _inode_of(previous)


def recycles(directory: Path, write: Callable[[], object], key: str = "a") -> bool:
    """Write, and say whether the new generation is in the file of the one before the last."""
    current, previous = files_of(directory, key)
    write()
    return files_of(directory, key) == (previous, current)


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


@contextmanager
def never() -> Iterator[None]:
    """Inside, all writes take the classic way."""
    with mock.patch.object(Recycler, "open_spare", return_value=None):
        yield


def _inode_of(path: Path) -> int:
    return os.lstat(path).st_ino if os.path.lexists(path) else 0
