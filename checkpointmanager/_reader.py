"""Reads what is stored under a key, and raises every failure as one of our errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from ._checkpoint import Checkpoint
from ._errors import CheckpointNotFound, CheckpointTooNew, CorruptCheckpoint, SchemaMismatch, WrongKind
from ._events import Event, EventKind, Events
from ._format import repair
from ._format.envelope import Header, open_sealed
from ._format.reason import Damaged, TooNew
from ._schema import Misfit, Schema, Unknowns
from ._store import Store

T = TypeVar("T")
R = TypeVar("R")


class Found(NamedTuple, Generic[T]):
    """A checkpoint taken apart, as a read-modify-write needs it."""

    header: Header
    data: T
    unknowns: Unknowns | None

    def __repr__(self) -> str:
        return f"Found({self.header!r})"  # never data


class Reader(Generic[T]):
    """Takes no lock: a reader sees the old bytes or the new ones, and looks twice before it reports damage."""

    def __init__(self, store: Store, schema: Schema[T], boot: str, events: Events) -> None:
        self._store = store
        self._schema = schema
        self._boot = boot
        self._events = events

    def read(self, key: str) -> Found[T]:
        return self._look(key, self.understand)

    def verify(self, key: str) -> Header:
        """Checksum and header only; the data is not parsed."""
        header, _ = self._look(key, self._open)
        return header

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
        """The previous generation, if it is a whole checkpoint of this key that this program can read."""
        try:
            return self.understand(key, self._store.read(key, previous=True))
        except (CheckpointNotFound, Damaged, TooNew, WrongKind, SchemaMismatch):
            return None

    def highest_generation(self, key: str) -> int:
        """At least the generation of a damaged checkpoint: the one that it seems to state, or generation_gone()."""
        stated = 0
        with suppress(CheckpointNotFound, Damaged):
            stated = repair.generation_in(self._store.read(key))
        return max(stated, self.generation_gone(key))

    def generation_gone(self, key: str) -> int:
        """At least the generation of a checkpoint that is gone: one above the previous, or what a crash brings back."""
        after_previous = 0
        with suppress(CheckpointNotFound, Damaged, TooNew, WrongKind):
            header, _ = self._open(key, self._store.read(key, previous=True))
            after_previous = header.generation + 1
        return max(after_previous, self._store.highest_generation(key))

    def _open(self, key: str, blob: bytes) -> tuple[Header, memoryview]:
        header, data = open_sealed(blob, key)
        if not self._schema.accepts(header.kind):
            raise WrongKind(key, self._store.path_of(key), header.kind, self._schema.kind)
        return header, data

    def _look(self, key: str, understand: Callable[[str, bytes], R]) -> R:
        try:
            try:
                return understand(key, self._store.read(key))
            except Damaged:
                # The file may have been replaced between the lookup of its name and the read, so look it up again.
                return understand(key, self._store.read(key))
        except Damaged as damage:
            path = self._store.path_of(key)
            error = CorruptCheckpoint(key, path, damage)
            self._events.emit(Event(EventKind.DAMAGE, path, damage.detail, key, damage.reason))
            raise error from damage.__cause__
        except SchemaMismatch as mismatch:
            detail = f"does not fit this program: {mismatch.detail}; the file is whole"
            self._events.emit(Event(EventKind.SCHEMA_MISMATCH, mismatch.path, detail, key))
            raise
        except TooNew as too_new:
            raise CheckpointTooNew(key, self._store.path_of(key), str(too_new)) from too_new.__cause__
