"""What can be done about a damaged checkpoint. A decision of the caller, never a reflex of the library."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._checkpoint import Outcome, Recovery
from ._errors import CheckpointError, CorruptCheckpoint
from ._events import Event, EventKind, Events
from ._format.envelope import open_sealed, seal
from ._format.reason import SHORTAGES, Damaged, TooNew
from ._format.repair import repair
from ._reader import Reader
from ._store import Store
from ._writer import Writer, shortage


class _Cure(NamedTuple):
    outcome: Outcome
    blob: bytes
    detail: str
    generation: int = 0  # that it goes back to


def recover(key: str, rollback: bool, *, store: Store, reader: Reader[Any], writer: Writer, events: Events) -> Recovery:
    """Called while holding the key. Where nothing can be done, nothing is touched."""
    writer.forget(key)
    try:
        reader.read(key)
    except CorruptCheckpoint as damage:
        if damage.errno in SHORTAGES:
            raise shortage(key, damage.path, damage.errno) from damage
        corrupt = damage
    else:
        return Recovery(key, Outcome.INTACT, "the checkpoint is whole")
    cure = _exact(key, store, reader) or _previous(key, store, reader)
    if cure is None:
        return Recovery(key, Outcome.HOPELESS, f"{corrupt.detail}: no exact repair, and no previous generation")
    if cure.generation and not rollback:
        detail = f"{corrupt.detail}: no exact repair; with rollback {cure.detail}"
        return Recovery(key, Outcome.HOPELESS, detail, rollback_to=cure.generation)
    kept = writer.replace_damaged(key, corrupt.reason, cure.blob)
    events.emit(Event(EventKind.RECOVERED, corrupt.path, f"{cure.outcome}: {cure.detail}", key, corrupt.reason))
    return Recovery(key, cure.outcome, cure.detail, kept)


def _exact(key: str, store: Store, reader: Reader[Any]) -> _Cure | None:
    """The very bytes that were written, so also the same generation."""
    try:
        mended = repair(store.read(key))
        if mended is None:
            return None
        reader.understand(key, mended.blob)
    except Damaged as damage:
        if damage.errno in SHORTAGES:
            raise shortage(key, store.path_of(key), damage.errno) from damage
        return None
    except (TooNew, CheckpointError):
        return None
    return _Cure(Outcome.REPAIRED, mended.blob, mended.finding)


def _previous(key: str, store: Store, reader: Reader[Any]) -> _Cure | None:
    """The generation before, under a number above all that were seen. Boot and time stay those of its data."""
    try:
        before = store.read(key, previous=True)
        reader.understand(key, before)
    except (Damaged, TooNew, CheckpointError):
        return None
    header, data = open_sealed(before, key)
    generation = max(reader.highest_generation(key), header.generation + 1) + 1
    detail = (
        f"generation {header.generation}, written {header.written:%Y-%m-%d %H:%M:%S} UTC, comes back "
        f"as generation {generation}; what was written after it is lost"
    )
    blob = seal(header._replace(generation=generation), data)
    return _Cure(Outcome.ROLLED_BACK, blob, detail, header.generation)
