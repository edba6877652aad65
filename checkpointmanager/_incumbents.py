"""What is stored under a key before a change: its generation, and a copy of its bytes if they are damaged.

A writer asks only when it does not know: for the first change of a key, after a failure, and where other processes
write as well.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ._errors import (
    CheckpointNotFound,
    CheckpointTooNew,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    DirectoryUnusable,
    SchemaMismatch,
    WrongKind,
)
from ._events import Event, EventKind, Events
from ._format.envelope import Header
from ._format.reason import SHORTAGES, Reason
from ._reader import Reader
from ._store import Current, Put, Store


class Incumbents:
    """The checkpoints that a store has now. The caller holds every key it asks about."""

    def __init__(self, store: Store, reader: Reader[Any], events: Events) -> None:
        self._store = store
        self._reader = reader
        self._events = events
        self.moving: dict[str, Event] = {}  # folders that the next commit moves; each guarded by its key's lock

    def before_write(self, key: str, lowest: int, found: Header | None) -> tuple[Current, int]:
        """What is there, and its generation, or `lowest` if that is higher. Damaged bytes have been copied.

        `found` is the header of a good checkpoint that the caller has just read.
        """
        try:
            header = found or self._reader.read(key).header
            return Current.FOUND, max(header.generation, lowest)
        except CheckpointNotFound:
            return Current.ABSENT, self._reader.generation_gone(key)
        except SchemaMismatch as mismatch:
            return Current.FOUND, max(mismatch.generation, lowest)  # whole, so it becomes the previous generation
        except CorruptCheckpoint as damage:
            if damage.errno in SHORTAGES:
                raise shortage(key, damage.path, damage.errno) from damage
            self._refuse_twin(key, damage)
            self.quarantine(key, damage.reason)
            return Current.DAMAGED, max(self._reader.highest_generation(key), lowest)

    def before_removal(self, key: str) -> int:
        """The highest generation seen. Damaged bytes have been copied, if possible.

        A removal must always be possible, so a copy that cannot be made is only reported.
        """
        try:
            return self._reader.verify(key).generation
        except CheckpointNotFound:
            return 0
        except CorruptCheckpoint as damage:
            self._refuse_twin(key, damage)
            try:
                self.quarantine(key, damage.reason)
            except CheckpointWriteFailed as error:
                event = Event(EventKind.NOT_QUARANTINED, damage.path, str(error), key, damage.reason)
                self._events.emit(event)
        except (CheckpointTooNew, WrongKind):
            pass  # whole, but another program's: nothing is damaged
        return self._reader.highest_generation(key)

    def quarantine(self, key: str, reason: Reason) -> str:
        """Copy damaged bytes; returns where the copy is."""
        path = self._store.path_of(key)
        try:
            kept = self._store.quarantine(key, reason)
        except DirectoryUnusable:
            raise  # nothing is wrong with the copy: the store can be neither read nor written now
        except OSError as error:
            raise CheckpointWriteFailed(key, path, error, in_doubt=False) from error
        if kept:
            event = Event(EventKind.QUARANTINED, path, f"the damaged bytes are kept in {kept}", key, reason)
            if reason is Reason.NOT_A_FILE:  # a folder, which stays in place until it is replaced
                self.moving[key] = event
            else:
                self._events.emit(event)
        return kept

    def report_moved(self, puts: Sequence[Put], removals: Iterable[str], failures: Collection[str]) -> None:
        """After a commit: folders in the place of these checkpoints are in quarantine now, except for the failures."""
        for key in (*(put.key for put in puts), *removals):
            event = self.moving.pop(key, None)
            if event and key not in failures:
                self._events.emit(event)

    def _refuse_twin(self, key: str, damage: CorruptCheckpoint) -> None:
        """Where the file system ignores case, the name of this key may be the file of another. That is not damage."""
        if damage.reason is not Reason.WRONG_KEY:
            return
        keys = self._store.keys()
        twin = next((other for other in keys if other.lower() == key.lower()), key)
        if key not in keys and twin != key:
            error = OSError(errno.EEXIST, f"the file system ignores case and has {twin!r} already; use another key")
            raise CheckpointWriteFailed(key, damage.path, error, in_doubt=False)


def shortage(key: str, path: str, number: int | None) -> CheckpointWriteFailed:
    """The error for a process that lacks descriptors or memory at the moment; nothing was touched."""
    error = OSError(number, os.strerror(number or 0))
    return CheckpointWriteFailed(key, path, error, in_doubt=False)
