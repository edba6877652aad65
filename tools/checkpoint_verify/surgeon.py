"""Repair with the library's own recovery: first as a rehearsal that writes nothing, then for real.

The library decides what can be done and in which order it reaches the disk. What is different here: any kind
of data is accepted, and as root the files stay the agent's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from checkpointmanager import CheckpointWriteFailed, FileStore, Outcome, Put, Reason, Recovery, Schema
from checkpointmanager._events import Events
from checkpointmanager._format.boot import boot_id
from checkpointmanager._format.envelope import Header, open_sealed
from checkpointmanager._format.names import LOCK, QUARANTINE
from checkpointmanager._format.reason import Damaged
from checkpointmanager._reader import Found, Reader
from checkpointmanager._recovery import Recoverer
from checkpointmanager._writer import Writer

from .attributes import attributes_of, hand_over

_ANYTHING: Schema[Any] = Schema("anything")


class Surgeon:
    """Works on the damaged keys of one directory; `rehearsal` only tells what it would do, and takes no lock."""

    def __init__(self, directory: str, *, rehearsal: bool) -> None:
        self._store: FileStore = _Rehearsal(directory) if rehearsal else _Operation(directory)
        events = Events()
        self._reader = _AnyKind(self._store, _ANYTHING, boot_id(), events)
        self._writer = Writer(self._store, _ANYTHING.kind, self._reader, boot_id(), events)
        self._recoverer = Recoverer(self._store, self._reader, self._writer, events)

    def recover(self, key: str, *, rollback: bool) -> Recovery:
        with self._writer.changing(key):
            return self._recoverer.recover(key, rollback=rollback)[0]

    def discard(self, key: str, reason: str) -> Recovery:
        """Remove a checkpoint for good, but only when its bytes are safe in quarantine."""
        with self._writer.changing(key):
            kept = self._store.quarantine(key, Reason(reason))
            if failures := self._store.commit([], [key]):
                raise failures[key]
        return Recovery(key, Outcome.HOPELESS, "the file is removed, and the agent starts this key as new", kept)

    def close(self) -> None:
        self._store.close()


class _AnyKind(Reader[Any]):
    """The tool knows no schemas: every kind and version is fine, if it is whole and JSON."""

    def understand(self, key: str, blob: bytes) -> Found[Any]:
        header, data = open_sealed(blob, key)
        try:
            return Found(header, orjson.loads(data), None)
        except orjson.JSONDecodeError:
            raise Damaged(Reason.NOT_JSON, "the checksum holds, but the data is not JSON") from None

    def _open(self, key: str, blob: bytes) -> tuple[Header, memoryview]:
        return open_sealed(blob, key)


class _Rehearsal(FileStore):
    """Reads what is there, and says yes to everything else without doing it."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, read_only=True, allow_insecure=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        yield

    def commit(self, puts: Sequence[Put], removals: Sequence[str] = ()) -> dict[str, CheckpointWriteFailed]:
        return {}

    def quarantine(self, key: str, reason: Reason) -> str:
        return os.path.join(self.path, QUARANTINE)


class _Operation(FileStore):
    """The owner of the directory for as long as the repair takes."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, owner="checkpoint-verify repair", allow_insecure=True)
        hand_over(LOCK, self._directory.descriptor)

    def quarantine(self, key: str, reason: Reason) -> str:
        kept = super().quarantine(key, reason)
        if kept:
            hand_over(QUARANTINE, self._directory.descriptor)
            folder = self._directory.open_folder(QUARANTINE)
            try:
                hand_over(os.path.basename(kept), folder)  # a copy, where the file system makes no links
            finally:
                os.close(folder)
        return kept

    def _on_staged(self, name: str, descriptor: int) -> None:
        attributes_of(name, self._directory.descriptor).give_to(descriptor)
