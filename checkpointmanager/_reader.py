"""Reads what is stored under a key, and raises every failure as one of our errors."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from ._checkpoint import Checkpoint, Loaded, Verified
from ._errors import (
    CheckpointError,
    CheckpointNotFound,
    CheckpointTooNew,
    CheckpointUnreadable,
    CorruptCheckpoint,
    SchemaMismatch,
    WrongKind,
)
from ._events import Event, EventKind, Events
from ._gcpause import gc_paused
from ._readahead import read_ahead
from ._schema import Misfit, Schema, Unknowns
from ._store import Store
from .format import Damaged, Header, Reason, TooNew, generation_in, legible_data, open_sealed

T = TypeVar("T")
R = TypeVar("R")

# What can be wrong with one checkpoint, and leaves all others alone.
PROBLEMS = (CorruptCheckpoint, CheckpointUnreadable, CheckpointTooNew, SchemaMismatch, WrongKind)


class Found(NamedTuple, Generic[T]):
    """A checkpoint taken apart, as a read-modify-write needs it."""

    header: Header
    data: T
    unknowns: Unknowns | None

    def __repr__(self) -> str:
        return f"Found({self.header!r})"  # never data


class Reader(Generic[T]):
    """Takes no lock: a reader sees the old bytes or the new ones, and looks twice before it reports damage.

    `known` is what the writer remembers about each key. A problem makes it forget, so that its next write of the key
    is never "unchanged".
    """

    def __init__(
        self, store: Store, schema: Schema[T], boot: str, events: Events, known: MutableMapping[str, Any]
    ) -> None:
        self._store = store
        self._schema = schema
        self._boot = boot
        self._events = events
        self._known = known

    def read(self, key: str) -> Found[T]:
        return self._look(key, self.understand)

    def verify(self, key: str) -> Header:
        """Checksum and header only; the data is not parsed."""
        header, _ = self._look(key, self._open)
        return header

    def get(self, key: str) -> Checkpoint[T]:
        found = self._look(key, self.understand)
        return self.checkpoint(found.header, found.data)

    def load(self, repaired: Callable[[str], Checkpoint[T]] | None = None) -> Loaded[T]:
        """Everything. `repaired` gets a damaged checkpoint after an exact repair, or raises what get() raised."""
        checkpoints: dict[str, Checkpoint[T]] = {}
        problems: dict[str, CheckpointError] = {}
        with gc_paused():
            for key in read_ahead(self._store, sorted(self._store.keys())):
                try:
                    checkpoints[key] = repaired(key) if repaired else self.get(key)
                except PROBLEMS as problem:
                    problems[key] = problem
                except CheckpointNotFound:
                    continue  # removed since the directory was listed
        return Loaded(checkpoints, problems)

    def verify_all(self) -> Verified:
        intact = 0
        problems: dict[str, CheckpointError] = {}
        for key in read_ahead(self._store, sorted(self._store.keys())):
            try:
                self.verify(key)
                intact += 1
            except PROBLEMS as problem:
                problems[key] = problem
            except CheckpointNotFound:
                continue
        return Verified(intact, problems)

    def understand(self, key: str, blob: bytes) -> Found[T]:
        """The content of these bytes as checkpoint of `key`. Raises Damaged, TooNew, WrongKind or SchemaMismatch."""
        header, data = self._open(key, blob)
        try:
            value, unknowns = self._schema.decode(data, header.version, header.readable_by)
        except Misfit as misfit:
            raise SchemaMismatch(
                key,
                self._store.path_of(key),
                misfit.where,
                misfit.why,
                version=header.version,
                generation=header.generation,
            ) from misfit.__cause__
        return Found(header, value, unknowns)

    def checkpoint(self, header: Header, data: T, unchanged: bool = False) -> Checkpoint[T]:
        same_boot = header.boot == self._boot if header.boot and self._boot else None
        return Checkpoint(
            data,
            header.key,
            header.generation,
            header.version,
            header.written,
            header.boot,
            same_boot,
            unchanged,
        )

    def previous(self, key: str) -> Found[T] | None:
        """The previous generation, if it is a whole checkpoint of this key that this program can read.

        One without a checkpoint beside it belongs to a checkpoint that was removed, and does not count.
        """
        try:
            if not self._store.exists(key):
                return None
            return self.understand(key, self._store.read(key, previous=True))
        except (CheckpointNotFound, Damaged, TooNew, WrongKind, SchemaMismatch):
            return None

    def highest_generation(self, key: str) -> int:
        """At least the generation of a damaged checkpoint: the one that its bytes seem to state, or generation_gone."""
        stated = 0
        with suppress(CheckpointNotFound, Damaged):
            stated = generation_in(self._store.read(key))
        return max(stated, self.generation_gone(key))

    def generation_gone(self, key: str) -> int:
        """At least the generation of a checkpoint that is gone; 0 if there is no trace of one.

        One above the previous generation, or the highest one that a crash could restore.
        """
        highest = self._store.highest_generation(key)
        with suppress(CheckpointNotFound, Damaged, TooNew, WrongKind):
            header, _ = self._open(key, self._store.read(key, previous=True))
            highest = max(highest, header.generation + 1)
        return highest

    def _open(self, key: str, blob: bytes) -> tuple[Header, memoryview]:
        header, data = open_sealed(blob, key)
        if not self._schema.accepts(header.kind):
            raise WrongKind(key, self._store.path_of(key), header.kind, self._schema.kind)
        return header, data

    def _look(self, key: str, understand: Callable[[str, bytes], R]) -> R:
        blob = b""
        try:
            try:
                return understand(key, self._store.read(key))
            except Damaged:  # the file may have been replaced between the lookup of its name and the read
                blob = self._store.read(key)
                return understand(key, blob)
        except Damaged as damage:
            self._known.pop(key, None)
            raise self._damaged(key, damage, blob) from damage.__cause__
        except TooNew as too_new:
            self._known.pop(key, None)
            raise CheckpointTooNew(key, self._store.path_of(key), str(too_new)) from too_new.__cause__
        except CheckpointError as error:
            self._known.pop(key, None)
            if isinstance(error, SchemaMismatch):
                detail = f"does not fit this program: {error.detail}; the file is whole"
                self._events.emit(Event(EventKind.SCHEMA_MISMATCH, error.path, detail, key))
            raise

    def _damaged(self, key: str, damage: Damaged, blob: bytes) -> CorruptCheckpoint | CheckpointUnreadable:
        path = self._store.path_of(key)
        if damage.reason is Reason.UNREADABLE:
            self._events.emit(Event(EventKind.UNREADABLE, path, damage.detail, key, damage.reason))
            return CheckpointUnreadable(key, path, damage)
        self._events.emit(Event(EventKind.DAMAGE, path, damage.detail, key, damage.reason))
        return CorruptCheckpoint(key, path, damage, legible_data(blob))
