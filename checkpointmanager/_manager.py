"""The CheckpointManager: a key on one side, a typed checkpoint on the other.

A value passes schema, envelope and store on its way to the disk, and the same way back. The manager composes
them through a Reader and a Writer; it holds no data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack, overload

from ._changeset import NO_DEFAULT, Batch, Transaction
from ._checkpoint import Checkpoint, Loaded, Recovery, Verified
from ._errors import (
    CheckpointExists,
    CheckpointNotFound,
    UnstorableValue,
)
from ._events import Event, Events
from ._filestore import FileStore
from ._locks import KeyLocks
from ._metricssink import MetricsSink
from ._options import FileOptions, check_arguments, check_key
from ._reader import Found, Reader
from ._recovery import Recoverer, RecoveryPlan
from ._schema import Schema
from ._store import Store
from ._writer import Known, Writer
from .format import boot_id as boot_id_of_the_kernel
from .format import is_name

T = TypeVar("T")
D = TypeVar("D")

ANY_JSON: Schema[Any] = Schema("JSON")


class CheckpointManager(Generic[T]):
    """Checkpoints of one kind in one directory, safe for many threads.

    `directory` is created if it is missing; a Store (such as MemoryStore) may take its place. With no
    `schema` the data is any JSON value. Options of a directory:

    sharing         take the lock around each write instead of for life, for processes that overlap
    read_only       take no lock and refuse to write
    durability      "full" (default): a write that returned survives power loss; "atomic": only a crash of
                    the process or a later one of the machine, as kubelet's files do
    owner           a label shown to processes that find the directory locked
    lock_timeout    seconds to wait for the lock; by default 0, and 10 with sharing
    allow_insecure  accept a directory that other users could write to
    max_bytes       the limit for one file, by default 64 MiB

    On a Store they mean nothing, and sharing, read_only and max_bytes are refused: a store has its own.

    `on_event` is called with each Event, outside all locks. `metrics` counts every change, such as a
    CheckpointMetrics. `boot_id` replaces the kernel's, for tests.
    """

    @overload
    def __init__(
        self: CheckpointManager[Any],
        directory: str | os.PathLike[str] | Store,
        schema: None = None,
        *,
        on_event: Callable[[Event], object] | None = None,
        boot_id: str | None = None,
        **options: Unpack[FileOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        directory: str | os.PathLike[str] | Store,
        schema: Schema[T],
        *,
        on_event: Callable[[Event], object] | None = None,
        boot_id: str | None = None,
        **options: Unpack[FileOptions],
    ) -> None: ...
    def __init__(
        self,
        directory: str | os.PathLike[str] | Store,
        schema: Schema[Any] | None = None,
        *,
        on_event: Callable[[Event], object] | None = None,
        boot_id: str | None = None,
        **options: Unpack[FileOptions],
    ) -> None:
        check_arguments(directory, schema, on_event, boot_id, options)
        boot = boot_id_of_the_kernel() if boot_id is None else boot_id
        if boot and not is_name(boot):
            raise ValueError(f"boot_id {boot!r}: use letters, digits, '-', '_' and '.', as in a key")
        metrics = options.get("metrics")
        locks = KeyLocks()
        self._events = Events(on_event, _measured(metrics, directory) if metrics else None, locks)
        self._schema: Schema[T] = ANY_JSON if schema is None else schema
        try:
            with locks.locked("open"):  # any key: events wait while one is held
                if isinstance(directory, str | os.PathLike):
                    self._store: Store = FileStore(directory, emit=self._events.emit, **options)
                else:
                    self._store = directory  # the options mean nothing here; an agent opens both in the same way
        finally:
            self._events.deliver()
        known: dict[str, Known] = {}
        self._reader: Reader[T] = Reader(self._store, self._schema, boot, self._events, known)
        self._writer = Writer(
            self._store, self._schema.kind, self._reader, boot, self._events, known=known, locks=locks, metrics=metrics
        )
        self._recoverer = Recoverer(self._store, self._reader, self._writer, self._events)
        if metrics:
            metrics.opened(self._store)

    def create_checkpoint(self, key: str, data: T, *, overwrite: bool = True) -> Checkpoint[T]:
        """Write `data` under `key`; durable when it returns.

        Replaces what is there, a damaged file too (its bytes go to quarantine first), and a whole one that does
        not fit the schema (it becomes the previous generation), but never a file that only a newer program can
        read, nor one of another kind. With overwrite=False any file is left alone.
        """
        check_key(key)
        encoded = self._schema.encode(data)
        with self._writer.changing(key):
            if not overwrite and key in self:
                raise CheckpointExists(key, self._store.path_of(key))
            header, unchanged = self._writer.write(key, encoded)
        return self._reader.checkpoint(header, data, unchanged=unchanged)

    @overload
    def get_checkpoint(self, key: str) -> Checkpoint[T]: ...
    @overload
    def get_checkpoint(self, key: str, default: D) -> Checkpoint[T] | D: ...
    def get_checkpoint(self, key: str, default: Any = NO_DEFAULT) -> Any:
        """The checkpoint on disk, verified. CheckpointNotFound is the only error that means "new".

        With a `default` that one error becomes the default. Damage never does.
        """
        try:
            return self._reader.get(check_key(key))
        except CheckpointNotFound:
            if default is NO_DEFAULT:
                raise
            return default

    def previous_checkpoint(self, key: str) -> Checkpoint[T] | None:
        """The previous generation, if it is whole and readable. The library never uses it unasked."""
        check_key(key)
        found = self._reader.previous(key)
        return self._reader.checkpoint(found.header, found.data) if found else None

    @overload
    def update_checkpoint(self, key: str, change: Callable[[T], T]) -> Checkpoint[T]: ...
    @overload
    def update_checkpoint(self, key: str, change: Callable[[T], T], default: T) -> Checkpoint[T]: ...
    @overload
    def update_checkpoint(self, key: str, change: Callable[[T | None], T], default: None) -> Checkpoint[T]: ...
    def update_checkpoint(self, key: str, change: Callable[[Any], T], default: Any = NO_DEFAULT) -> Checkpoint[T]:
        """Read, let `change` make the new value, write; no other writer comes between.

        `change` gets a value of its own and may mutate it, but must return the new one. If it raises, nothing
        is written. Fields that the schema does not know are kept. A missing key is CheckpointNotFound; with a
        `default` the change is made to that instead, and the checkpoint is created. Damage raises as ever.
        """
        check_key(key)
        with self._writer.changing(key):
            try:
                found: Found[Any] | None = self._reader.read(key)
            except CheckpointNotFound:
                if default is NO_DEFAULT:
                    raise
                found = None
            data = change(found.data if found else default)
            if data is None:
                raise UnstorableValue("$", "the change function returned None instead of the new value")
            encoded = self._schema.encode(data, found.unknowns if found else None)
            header, unchanged = self._writer.write(key, encoded, found.header if found else None)
        return self._reader.checkpoint(header, data, unchanged=unchanged)

    def remove_checkpoint(self, key: str) -> None:
        """Remove a checkpoint, for good when this returns. No error if there is none; the file need not be readable."""
        check_key(key)
        with self._writer.changing(key):
            self._writer.remove(key)

    def list_checkpoints(self) -> list[str]:
        """Every key, sorted; also those whose files are damaged."""
        return sorted(self._store.keys())

    def load(self, *, repair: bool = False) -> Loaded[T]:
        """Load everything. One bad file is reported and costs nothing but itself.

        With repair=True files that can be repaired exactly are repaired, as recover_checkpoint does without rollback. A
        repair that is not possible, or fails (a full disk, read_only), leaves the key among the problems. So does
        one that would take too long: all searches for flipped bits together are limited to a few seconds, which
        is enough for thousands of small files or two of 64 KiB.
        """
        return self._recoverer.load() if repair else self._reader.load()

    def verify(self) -> Verified:
        """Check every file's checksum and header without decoding its data."""
        return self._reader.verify_all()

    def batch(self) -> Batch[T]:
        """Many writes and removals, committed when the with block ends; much cheaper than one by one.

        Each checkpoint is atomic, the batch as a whole is not: BatchFailed says what did not become durable.
        """
        return Batch(self._store, self._schema, self._reader, self._writer)

    def transaction(self) -> Transaction[T]:
        """Changes of several keys that belong together: when the with block ends all of them are durable, or none.

        Also over exceptions, kills and power loss, whatever `durability` is: a transaction is always synced in full.
        Readers may see the keys change one after the other.
        """
        return Transaction(self._store, self._schema, self._reader, self._writer)

    def recover_checkpoint(self, key: str, *, rollback: bool = False) -> Recovery:
        """Repair a damaged checkpoint where the checksum proves that the repair is exact.

        Where it is not possible, rollback=True goes back to the previous generation, which loses the last
        acknowledged change. The damaged bytes are kept in quarantine before anything is replaced.
        SchemaMismatch: the file is whole, or is so again, and this program cannot use it; nothing is rolled back.
        """
        check_key(key)
        with self._writer.changing(key):
            return self._recoverer.recover(key, rollback=rollback)

    def plan_recovery(self, key: str) -> RecoveryPlan:
        """What recover_checkpoint could do, and what it would cost; plan.apply() does it.

        Takes no lock, changes nothing, and works with read_only=True.
        """
        return self._recoverer.plan(check_key(key))

    @property
    def path(self) -> str:
        """The directory, or the name of the store that is used in its place."""
        return self._store.path

    def path_of(self, key: str) -> str:
        """Names one checkpoint in messages: its file, where there is one."""
        return self._store.path_of(check_key(key))

    @property
    def exclusive(self) -> bool:
        """True if no other process or manager can write while this manager is open: neither sharing nor read_only."""
        return self._store.exclusive

    def close(self) -> None:
        """Wait for running calls, then give the directory back. May be called twice."""
        self._store.close()

    def __enter__(self) -> CheckpointManager[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __contains__(self, key: str) -> bool:
        exists = self._store.exists(check_key(key))
        if not exists:
            self._writer.forget(key)
        return exists

    def __iter__(self) -> Iterator[str]:
        return iter(self.list_checkpoints())

    def __len__(self) -> int:
        return len(self._store.keys())

    def __bool__(self) -> bool:
        """Always true: `manager or default` must not mistake an empty one for none."""
        return True

    def __repr__(self) -> str:
        return f"CheckpointManager({self._store.path!r}, {self._schema!r})"


def _measured(metrics: MetricsSink, directory: str | os.PathLike[str] | Store) -> Callable[[Event], object]:
    path = os.path.abspath(os.fspath(directory)) if isinstance(directory, str | os.PathLike) else directory.path
    return lambda event: metrics.happened(path, event)
