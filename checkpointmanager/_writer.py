"""From encoded data to a durable file: counts generations, and skips content that is unchanged.

Cached knowledge about a key is dropped before each write, and learned again from the file after a failure. So a write
in doubt can never be mistaken for one that happened.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from xxhash import xxh3_128_digest

from ._errors import (
    CheckpointError,
    CheckpointNotFound,
    CheckpointTooNew,
    CheckpointUnreadable,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    DirectoryUnusable,
    SchemaMismatch,
    TransactionFailed,
    UnstorableValue,
    WrongKind,
)
from ._events import Event, EventKind, Events
from ._interruption import pass_on_interruption
from ._locks import KeyLocks, Unbroken
from ._metricssink import MetricsSink
from ._reader import Reader
from ._schema import Encoded
from ._store import Put, Remove, Replaces, Store
from .format import MAX_GENERATION, RETIRED, SHORTAGES, Damaged, Header, Reason, TooNew, open_sealed, seal

# By key: the new content (None: a removal), and the header of a good checkpoint that was just read.
Changes = dict[str, tuple[Encoded | None, Header | None]]


class Committed(NamedTuple):
    """Headers that are durable now, keys that were already up to date, and failures."""

    headers: Mapping[str, Header]
    unchanged: frozenset[str]
    failures: Mapping[str, CheckpointError]


class Known(NamedTuple):
    """A checkpoint that this owner wrote durably. The digest is of its data alone."""

    header: Header
    digest: bytes


class Writer:
    """All changes go through here, each inside `changing` its keys."""

    def __init__(
        self,
        store: Store,
        kind: str,
        reader: Reader[Any],
        boot: str,
        events: Events,
        *,
        known: dict[str, Known],
        locks: KeyLocks,
        metrics: MetricsSink | None,
    ) -> None:
        self._store = store
        self._kind = kind
        self._reader = reader
        self._boot = boot
        self._events = events
        self._known = known  # each entry guarded by its key's lock
        self._metrics = metrics
        self._locks = locks

    def changing(self, *keys: str) -> Unbroken:
        """No other writer changes these keys in the block; events wait until the locks are released."""
        return Unbroken(self._changing(keys))

    def _changing(self, keys: Sequence[str]) -> Generator[None, None, None]:
        started = time.perf_counter() if self._metrics else 0.0
        try:
            # The store before its keys: a store that is closed, or was opened before a fork, must refuse at once.
            with self._store.writing(), self._locks.locked(*keys):
                if self._metrics:
                    self._metrics.waited(self._store.path, time.perf_counter() - started)
                self._store.check_owner(keys)
                yield
        finally:
            self._events.deliver()

    def write(self, key: str, encoded: Encoded, found: Header | None = None) -> tuple[Header, bool]:
        """Make a checkpoint durable; returns its header, and True if there was nothing to change.

        `found` is the header of a good checkpoint that the caller has just read.
        """
        done = self.commit({key: (encoded, found)})
        _raise_first(done.failures)
        return done.headers[key], key in done.unchanged

    def remove(self, key: str) -> None:
        _raise_first(self.commit({key: (None, None)}).failures)

    def commit(self, changes: Changes, *, together: bool = False) -> Committed:
        """Make the changes durable: all or none with `together`. Afterwards exactly what is durable is remembered."""
        failures: dict[str, CheckpointError] = {}
        made: list[Put | Remove] = []
        written: dict[str, Known] = {}
        unchanged: set[str] = set()
        for key, (encoded, found) in changes.items():
            try:
                if encoded is None:
                    put: Put | Remove | None = self._prepare_removal(key)
                else:
                    written[key], put = self._prepare(key, encoded, found)
            except CheckpointError as error:
                if together:
                    raise TransactionFailed(key, self._store.path_of(key), error) from error
                failures[key] = error
                continue
            if put:
                made.append(put)
            elif encoded is not None:
                unchanged.add(key)
                self._skip()
        if made:
            failures |= self._commit(made, together=together)
        durable = {key: after for key, after in written.items() if key not in failures}
        if self._store.exclusive:  # else another process may write the keys at any time
            self._known.update(durable)
        headers = {key: after.header for key, after in durable.items()}
        return Committed(headers, frozenset(unchanged), failures)

    def replace_damaged(self, key: str, reason: Reason, blob: bytes) -> str:
        """Replace damaged bytes with `blob`, after copying them to quarantine; returns where the copy is."""
        kept = self._quarantine(key, reason)
        header, _ = open_sealed(blob, key)
        _raise_first(self._commit([Put(key, blob, header.generation, Replaces.DAMAGED)]))
        return kept

    def discard_damaged(self, key: str, reason: Reason) -> str:
        """Remove damaged bytes, after copying them to quarantine; returns where the copy is."""
        kept = self._quarantine(key, reason)
        _raise_first(self._commit([Remove(key, self._after(key, self._reader.highest_generation(key)))]))
        return kept

    def keep_retired(self, keys: Sequence[str]) -> None:
        """Copy whole checkpoints to quarantine, before they are removed. Raises CheckpointWriteFailed."""
        for key in keys:
            try:
                self._store.quarantine(key, RETIRED)
            except FileNotFoundError:  # removed by hand
                continue
            except OSError as error:
                pass_on_interruption(error)
                raise CheckpointWriteFailed(key, self._store.path_of(key), error, in_doubt=False) from error

    def forget(self, key: str) -> None:
        """Let the next write learn from the file again. Always safe."""
        self._known.pop(key, None)

    # One change

    def _prepare(self, key: str, encoded: Encoded, found: Header | None) -> tuple[Known, Put | None]:
        """What will be known after the write, and the write itself; None if the checkpoint has this content already."""
        digest = xxh3_128_digest(encoded.json)
        known = self._known.pop(key, None)
        lowest = known.header.generation if known else 0
        if known and found and found != known.header:
            known = None  # another program or a person has replaced the file
        versions = (known.header.version, known.header.readable_by) if known else None
        if known and digest == known.digest and versions == (encoded.version, encoded.readable_by):
            # Boot and durability are this owner's, so they are the same anyway.
            if found or self._is_there(key, known):
                self._known[key] = known
                return known, None
            known = None
        replaces, generation = (Replaces.WHOLE, lowest) if known else self._incumbent(key, found)
        header = Header(
            self._kind,
            encoded.version,
            encoded.readable_by,
            key,
            self._after(key, max(generation, lowest)),
            self._boot,
            datetime.now(UTC),
        )
        blob = seal(header, encoded.json)
        if len(blob) > self._store.max_bytes:
            raise UnstorableValue("$", f"takes {len(blob)} bytes, over the limit of {self._store.max_bytes}")
        return Known(header, digest), Put(key, blob, header.generation, replaces)

    def _incumbent(self, key: str, found: Header | None) -> tuple[Replaces, int]:
        """What a write replaces, and the highest generation of the key. Damaged bytes have been copied."""
        try:
            generation = found.generation if found else self._reader.read(key).header.generation
        except CheckpointNotFound:
            return Replaces.ABSENT, self._reader.generation_gone(key)
        except SchemaMismatch as mismatch:
            generation = mismatch.generation
        except (CorruptCheckpoint, CheckpointUnreadable) as damage:
            if damage.errno in SHORTAGES:
                raise shortage(key, damage.path, damage.errno) from damage
            self._quarantine(key, damage.reason)
            return Replaces.DAMAGED, self._reader.highest_generation(key)
        return Replaces.WHOLE, max(generation, self._store.highest_generation(key))

    def _prepare_removal(self, key: str) -> Remove | None:
        """None if there is nothing to remove. A removal never needs the content; damaged bytes have been copied."""
        known = self._known.pop(key, None)
        if known:
            return Remove(key, self._after(key, known.header.generation))
        try:
            highest = self._reader.verify(key).generation
        except CheckpointNotFound:
            highest = self._reader.generation_gone(key)
            if not highest:
                return None  # neither a file, nor a previous generation, nor a record
        except (CorruptCheckpoint, CheckpointUnreadable) as damage:
            self._try_quarantine(key, damage)
            highest = self._reader.highest_generation(key)
        except (CheckpointTooNew, WrongKind):  # whole, but another program's
            highest = self._reader.highest_generation(key)
        return Remove(key, self._after(key, max(highest, self._store.highest_generation(key))))

    def _after(self, key: str, generation: int) -> int:
        if generation >= MAX_GENERATION:
            error = OSError(
                errno.EOVERFLOW, f"its generation is {generation}, after which there is none; move its file away"
            )
            raise CheckpointWriteFailed(key, self._store.path_of(key), error, in_doubt=False)
        return generation + 1

    def _is_there(self, key: str, known: Known) -> bool:
        """True if the file still has the known bytes: someone may have changed it."""
        try:
            header, data = open_sealed(self._store.read(key), key)
        except (CheckpointNotFound, Damaged, TooNew):
            return False
        return header == known.header and xxh3_128_digest(data) == known.digest

    # Quarantine

    def _quarantine(self, key: str, reason: Reason) -> str:
        """Copy damaged bytes; returns where the copy is. Raises CheckpointWriteFailed."""
        self.forget(key)
        path = self._store.path_of(key)
        try:
            if reason is Reason.NOT_A_FILE:
                raise OSError(errno.EISDIR, "a folder, link or device is in its place; move it away")
            kept = self._store.quarantine(key, reason)
        except DirectoryUnusable:
            raise  # nothing is wrong with the copy: the store can be neither read nor written now
        except OSError as error:
            pass_on_interruption(error)
            raise CheckpointWriteFailed(key, path, error, in_doubt=False) from error
        self._events.emit(Event(EventKind.QUARANTINED, path, f"the damaged bytes are kept in {kept}", key, reason))
        return kept

    def _try_quarantine(self, key: str, damage: CorruptCheckpoint | CheckpointUnreadable) -> None:
        """A removal must always be possible, so a copy that cannot be made is only reported."""
        try:
            self._quarantine(key, damage.reason)
        except CheckpointWriteFailed as error:
            if damage.reason is Reason.NOT_A_FILE:
                raise
            self._events.emit(Event(EventKind.NOT_QUARANTINED, damage.path, str(error), key, damage.reason))

    # The store

    def _commit(
        self, changes: Sequence[Put | Remove], *, together: bool = False
    ) -> Mapping[str, CheckpointWriteFailed]:
        if self._metrics is None:
            return self._store.commit(changes, together=together)
        started = time.perf_counter()
        try:
            failures = self._store.commit(changes, together=together)
        except TransactionFailed as error:
            all_failed = dict.fromkeys((change.key for change in changes), error)
            self._metrics.committed(self._store.path, changes, all_failed, time.perf_counter() - started)
            raise
        self._metrics.committed(self._store.path, changes, failures, time.perf_counter() - started)
        return failures

    def _skip(self) -> None:
        if self._metrics:
            self._metrics.unchanged(self._store.path)


def _raise_first(failures: Mapping[str, CheckpointError]) -> None:
    for failure in failures.values():
        raise failure


def shortage(key: str, path: str, number: int | None) -> CheckpointWriteFailed:
    """The error for a process that lacks descriptors or memory at the moment; nothing was touched."""
    error = OSError(number, os.strerror(number or 0))
    return CheckpointWriteFailed(key, path, error, in_doubt=False)
