"""Accesses the bytes of checkpoints without a manager: of files in a directory, or of a MemoryStore."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import Any

from .. import CheckpointManager, FileStore, MemoryStore
from ..format import current_name, previous_name

Target = CheckpointManager[Any] | FileStore | MemoryStore | str | os.PathLike[str]


def raw_bytes_of(target: Target) -> Files | Memory:
    store = target._store if isinstance(target, CheckpointManager) else target
    if isinstance(store, MemoryStore):
        return Memory(store)
    if isinstance(store, FileStore):
        return Files(store.path)
    if isinstance(store, str | os.PathLike):
        return Files(os.fspath(store))
    raise TypeError(
        f"cannot reach the bytes of a {type(store).__name__}; pass a manager, a FileStore, a MemoryStore or a path"
    )


class Files:
    """Writes files in place, unchecked: each stays the same file, with all its names."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def path(self, key: str) -> str:
        return os.path.join(self._directory, current_name(key))

    def read(self, key: str) -> bytes:
        with open(self.path(key), "rb") as file:
            return file.read()

    def write(self, key: str, blob: bytes) -> None:
        with open(self.path(key), "wb") as file:
            file.write(blob)

    def remove(self, key: str) -> None:
        os.unlink(self.path(key))

    def previous(self, key: str) -> bytes | None:
        with suppress(FileNotFoundError), open(self._previous_path(key), "rb") as file:
            return file.read()
        return None

    def write_previous(self, key: str, blob: bytes) -> None:
        with open(self._previous_path(key), "wb") as file:
            file.write(blob)

    def restore(self, key: str, blob: bytes, previous: bytes | None) -> None:
        """Put both generations back, whatever is in their place now."""
        _put(self.path(key), blob)
        _put(self._previous_path(key), previous)

    def _previous_path(self, key: str) -> str:
        return os.path.join(self._directory, previous_name(key))


class Memory:
    """Changes the dicts of a MemoryStore directly."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def read(self, key: str) -> bytes:
        return self._store.current[key]

    def write(self, key: str, blob: bytes) -> None:
        self._store.current[key] = blob

    def remove(self, key: str) -> None:
        del self._store.current[key]

    def previous(self, key: str) -> bytes | None:
        return self._store.previous.get(key)

    def write_previous(self, key: str, blob: bytes) -> None:
        self._store.previous[key] = blob

    def restore(self, key: str, blob: bytes, previous: bytes | None) -> None:
        self._store.current[key] = blob
        self._store.previous.pop(key, None)
        if previous is not None:
            self._store.previous[key] = previous


def _put(path: str, blob: bytes | None) -> None:
    """Replace whatever is at `path` with a new file, as the file store would create it."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    with suppress(FileNotFoundError):
        os.unlink(path)
    if blob is None:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(blob)
