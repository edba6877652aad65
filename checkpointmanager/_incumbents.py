"""What is stored under a key before a change: its generation, and a copy of its bytes if they are damaged.

A writer asks only when it does not know: for the first change of a key, after a failure, and where other processes
write as well.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from ._errors import (
    CheckpointError,
    CheckpointNotFound,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    SchemaMismatch,
)
from ._events import Event, EventKind, Events
from ._format.envelope import Header
from ._format.reason import SHORTAGES, Reason
from ._reader import Reader
from ._store import Replaces, Store


class Incumbents:
    """The checkpoints that a store has now. The caller holds every key it asks about."""

    def __init__(self, store: Store, reader: Reader[Any], events: Events) -> None:
        self._store = store
        self._reader = reader
        self._events = events

    def before_write(self, key: str, lowest: int, found: Header | None) -> tuple[Replaces, int]:
        """What is there, and its generation, or `lowest` if that is higher. Damaged bytes have been copied.

        `found` is the header of a good checkpoint that the caller has just read.
        """
        try:
            header = found or self._reader.read(key).header
            return Replaces.WHOLE, max(header.generation, lowest)
        except CheckpointNotFound:
            return Replaces.ABSENT, self._reader.generation_gone(key)
        except SchemaMismatch as mismatch:
            return Replaces.WHOLE, max(mismatch.generation, lowest)  # whole, so it becomes the previous generation
        except CorruptCheckpoint as damage:
            if damage.errno in SHORTAGES:
                raise shortage(key, damage.path, damage.errno) from damage
            self.refuse_if_not_a_file(key, damage.reason)
            self.quarantine(key, damage.reason)
            return Replaces.DAMAGED, max(self._reader.highest_generation(key), lowest)

    def before_removal(self, key: str) -> int:
        """The highest generation seen. Damaged bytes have been copied, if possible.

        A removal must always be possible, so a copy that cannot be made is only reported.
        """
        try:
            return self._reader.verify(key).generation
        except CheckpointNotFound:
            return 0
        except CorruptCheckpoint as damage:
            self.refuse_if_not_a_file(key, damage.reason)
            try:
                self.quarantine(key, damage.reason)
            except CheckpointWriteFailed as error:
                event = Event(EventKind.NOT_QUARANTINED, damage.path, str(error), key, damage.reason)
                self._events.emit(event)
        except CheckpointError:
            pass  # whole, but another program's: nothing is damaged
        return self._reader.highest_generation(key)

    def quarantine(self, key: str, reason: Reason) -> str:
        """Copy damaged bytes; returns where the copy is."""
        path = self._store.path_of(key)
        try:
            kept = self._store.quarantine(key, reason)
        except OSError as error:
            raise CheckpointWriteFailed(key, path, error, in_doubt=False) from error
        self._events.emit(Event(EventKind.QUARANTINED, path, f"the damaged bytes are kept in {kept}", key, reason))
        return kept

    def refuse_if_not_a_file(self, key: str, reason: Reason) -> None:
        """The library moves nothing away that it did not write, not even to quarantine."""
        if reason is Reason.NOT_A_FILE:
            error = OSError(errno.EISDIR, "a folder, link or device is in its place; move it away")
            raise CheckpointWriteFailed(key, self._store.path_of(key), error, in_doubt=False)


def shortage(key: str, path: str, number: int | None) -> CheckpointWriteFailed:
    """The error for a process that lacks descriptors or memory at the moment; nothing was touched."""
    error = OSError(number, os.strerror(number or 0))
    return CheckpointWriteFailed(key, path, error, in_doubt=False)
