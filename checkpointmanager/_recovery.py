"""What can be done about a damaged checkpoint. A decision of the caller, never a reflex of the library."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from ._checkpoint import Outcome, Recovery
from ._errors import CheckpointError, CorruptCheckpoint
from ._events import Event, EventKind, Events
from ._format.envelope import open_sealed, seal
from ._format.reason import SHORTAGES, Damaged, TooNew
from ._format.repair import repair
from ._reader import Found, Reader
from ._store import Store
from ._writer import Writer, shortage

T = TypeVar("T")


class _Cure(NamedTuple, Generic[T]):
    outcome: Outcome
    blob: bytes
    found: Found[T]  # what the blob says
    detail: str
    generation: int = 0  # that it goes back to


class Recoverer(Generic[T]):
    """Each call is made while holding the key. Where nothing can be done, nothing is touched."""

    def __init__(self, store: Store, reader: Reader[T], writer: Writer, events: Events) -> None:
        self._store = store
        self._reader = reader
        self._writer = writer
        self._events = events

    def recover(self, key: str, *, rollback: bool, report: bool = True) -> tuple[Recovery, Found[T] | None]:
        """What was done, and what stands there now if that is a good checkpoint."""
        self._writer.forget(key)
        try:
            found = self._reader.read(key, report=report)
        except CorruptCheckpoint as damage:
            if damage.errno in SHORTAGES:
                raise shortage(key, damage.path, damage.errno) from damage
            corrupt = damage
        else:
            return Recovery(key, Outcome.INTACT, "the checkpoint is whole"), found
        cure = self._exact(key) or self._previous(key)
        if cure is None:
            detail = f"{corrupt.detail}: no exact repair, and no previous generation"
            return Recovery(key, Outcome.HOPELESS, detail), None
        if cure.generation and not rollback:
            detail = f"{corrupt.detail}: no exact repair; with rollback {cure.detail}"
            return Recovery(key, Outcome.NEEDS_ROLLBACK, detail, rollback_to=cure.generation), None
        kept = self._writer.replace_damaged(key, corrupt.reason, cure.blob)
        detail = f"{cure.outcome}: {cure.detail}"
        self._events.emit(Event(EventKind.RECOVERED, corrupt.path, detail, key, corrupt.reason))
        return Recovery(key, cure.outcome, cure.detail, kept), cure.found

    def _exact(self, key: str) -> _Cure[T] | None:
        """The very bytes that were written, so also the same generation."""
        try:
            mended = repair(self._store.read(key))
            if mended is None:
                return None
            found = self._reader.understand(key, mended.blob)
        except Damaged as damage:
            if damage.errno in SHORTAGES:
                raise shortage(key, self._store.path_of(key), damage.errno) from damage
            return None
        except (TooNew, CheckpointError):
            return None
        return _Cure(Outcome.REPAIRED, mended.blob, found, mended.finding)

    def _previous(self, key: str) -> _Cure[T] | None:
        """The generation before, under a number above all that were seen. Boot and time stay those of its data."""
        try:
            before = self._store.read(key, previous=True)
            found = self._reader.understand(key, before)
        except (Damaged, TooNew, CheckpointError):
            return None
        header, data = open_sealed(before, key)
        generation = max(self._reader.highest_generation(key), header.generation + 1) + 1
        detail = (
            f"generation {header.generation}, written {header.written:%Y-%m-%d %H:%M:%S} UTC, comes back "
            f"as generation {generation}; what was written after it is lost"
        )
        renumbered = header._replace(generation=generation)
        blob = seal(renumbered, data)
        return _Cure(Outcome.ROLLED_BACK, blob, found._replace(header=renumbered), detail, header.generation)
