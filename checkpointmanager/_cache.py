"""An in-memory map of keys to values in front of a manager, which every agent would otherwise write by hand.

Reads take no lock and never wait: entries are immutable and swapped in one step. Writers of different keys do not
wait for each other. The disk comes first: a value is durable before any reader sees it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, TypeVar, overload

from ._cacheentry import REMOVED, CacheEntry, CacheItems, CacheValues, InDoubt, Removal, problem_of, value_of
from ._checkpoint import Checkpoint, Recovery
from ._errors import (
    BatchFailed,
    CheckpointError,
    CheckpointNotFound,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    InvalidKey,
    RetainRefused,
    TransactionFailed,
    UnstorableValue,
)
from ._gcpause import gc_paused
from ._manager import CheckpointManager
from ._options import check_key
from ._reader import PROBLEMS
from ._schema import Schema
from ._store import Store
from ._writer import Changes
from .format import Header

T = TypeVar("T")

ALWAYS_REMOVABLE = 3  # entries, by retain: a share of a few entries means nothing

Entries = Mapping[str, CacheEntry[T]]
Outcomes = Mapping[str, T | Literal[Removal.REMOVED]]
Swap = Callable[[str, CacheEntry[T] | None, CacheEntry[T] | None], object]


class CheckpointCache(Mapping[str, T]):
    """The checkpoints of a directory in memory: loaded when the cache is created, and kept equal to the disk.

        cache = CheckpointCache("/var/lib/agent/leases", LEASES)
        cache.put("pod-7", Lease("node-a"))         # durable, then visible
        cache["pod-7"]                              # from memory

    It reads like a dict. It is written by methods, because a write is durable and may fail. To open the directory
    with options, pass a CheckpointManager instead, which the cache takes over and closes.

    Damage that can be repaired exactly is repaired first; see `recoveries`. A key whose file cannot be trusted is
    present but has no value: reading it, by items() and values() too, raises its problem until the key is written
    again or deleted. good() leaves such keys out, and entries() has what is known about them. If a change fails in
    doubt, reads return the old value and `entry(key).in_doubt` has the new one; the next successful change resolves
    it. Readers share the values, so treat them as immutable.

    `on_swap(key, old, new)` is called with the old and the new entry (None: no such key) whenever one replaces the
    other. It runs in the thread that made the change, before any other change of that key, so indexes built on the
    cache change in the same step. It is not called for entries of the initial load. It must not raise or change the
    cache.
    """

    @overload
    def __init__(self, manager: CheckpointManager[T], /, *, on_swap: Swap[T] | None = None) -> None: ...
    @overload
    def __init__(
        self, directory: str | os.PathLike[str] | Store, /, schema: Schema[T], *, on_swap: Swap[T] | None = None
    ) -> None: ...
    def __init__(self, place: Any, /, schema: Schema[Any] | None = None, *, on_swap: Swap[T] | None = None) -> None:
        given = isinstance(place, CheckpointManager)
        if given and schema is not None:
            raise TypeError("a manager has its own schema: pass either the manager, or a directory and a schema")
        self._manager: CheckpointManager[T] = place if given else CheckpointManager(place, schema)
        self._on_swap = on_swap
        self._swapping = threading.Lock()  # guards changes of _entries; readers need no lock
        self._entries: dict[str, CacheEntry[T]] = {}
        self.recoveries: Mapping[str, Recovery] = {}
        try:
            self._load()
        except BaseException:
            self._manager.close()
            raise

    def __getitem__(self, key: str) -> T:
        """The value. Raises CheckpointNotFound (a KeyError) if the key is absent, or its problem if it has no value."""
        entry = self._entries.get(key)
        if entry is None:
            raise self._not_found(key)
        return value_of(entry)

    def entry(self, key: str) -> CacheEntry[T] | None:
        """Everything known about a key, or None; never raises."""
        return self._entries.get(key)

    def entries(self) -> list[CacheEntry[T]]:
        """All entries as they are now, including keys that cannot be trusted."""
        return list(self._entries.values())

    def good(self) -> Mapping[str, T]:
        """All values that can be read, as they are now, without the keys that have a problem."""
        return {entry.key: value_of(entry) for entry in self.entries() if entry.generation}

    def items(self) -> ItemsView[str, T]:
        """Pairs of keys and values. Iterating over them raises the problem of a key that has no value."""
        return CacheItems(self)

    def values(self) -> ValuesView[T]:
        """The values, like items()."""
        return CacheValues(self)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def problems(self) -> Mapping[str, CheckpointError]:
        """The error of every key that cannot be trusted or is in doubt."""
        return {entry.key: problem_of(entry) for entry in self.entries() if entry.problem or entry.in_doubt}

    def put(self, key: str, value: T) -> None:
        """Add or replace one value; durable when it returns."""
        self.change([key], lambda _: {key: value})

    def delete(self, *keys: str) -> None:
        """Remove all of these keys or none; durable when it returns. An absent key is not an error."""
        self.change(keys, lambda _: dict.fromkeys(keys, REMOVED))

    def change(
        self, keys: Iterable[str], function: Callable[[Entries[T]], Outcomes[T]], *, independent: bool = False
    ) -> None:
        """Read, change and write several keys, all or none, while no other writer changes them.

        `function` receives the entries of the keys that exist, and returns the new value, or REMOVED, of each key
        to change. If it raises, nothing changes and the exception reaches the caller. Several keys form one
        transaction: on disk all of them change or none, readers of the cache see them change one after another, and
        a failure is TransactionFailed. With independent=True they form a batch, in which each key succeeds or fails
        on its own, and BatchFailed says which. Memory always matches what is durable.
        """
        wanted = key_list(keys)
        with self._manager._writer.changing(*wanted):
            outcomes = function(self._known(wanted))
            if not isinstance(outcomes, Mapping):
                given = type(outcomes).__name__
                raise TypeError(f"the change function returned {given}; return a dict, {{}} to change nothing")
            if strangers := outcomes.keys() - set(wanted):
                raise ValueError(f"the change function returned keys it was not given: {sorted(strangers)}")
            if outcomes:
                self._write(outcomes, together=len(outcomes) > 1 and not independent)

    def retain(self, list_live: Callable[[], Iterable[str]], *, complete: bool, at_most: float = 0.5) -> Sequence[str]:
        """Remove every key that `list_live` does not return; returns the removed keys.

        `list_live` is called here, so that what was written since is spared. RetainRefused, and nothing removed, if
        the view is not `complete`, or if more than the share `at_most` of all keys would go (3 may always go): an
        incomplete view looks like a mass removal. Removed checkpoints stay in quarantine as `retired`, the newest
        1,000 of them; `checkpoint-verify quarantine restore` brings one back.
        """
        if not 0 <= at_most <= 1:
            raise ValueError(f"at_most must be a share from 0 to 1, not {at_most!r}")
        if not complete:
            raise RetainRefused(self._manager.path, "the view of what is alive may be incomplete")
        seen = self._entries.copy()  # before listing, so that every live key seen here is in the list
        live = frozenset(key_list(list_live()))
        doomed = sorted(seen.keys() - live)
        if len(doomed) > max(ALWAYS_REMOVABLE, int(at_most * len(seen))):
            why = f"{len(doomed)} of {len(seen)} keys would be removed, more than at_most={at_most:g} allows"
            raise RetainRefused(self._manager.path, why, doomed)
        removed: list[str] = []

        def retire(entries: Entries[T]) -> Outcomes[T]:
            removed.extend(key for key, entry in entries.items() if entry is seen[key])
            whole = [key for key in removed if not isinstance(entries[key].problem, CorruptCheckpoint)]
            self._manager._writer.keep_retired(whole)  # a removal keeps damaged bytes anyway
            return dict.fromkeys(removed, REMOVED)

        self.change(doomed, retire, independent=True)
        return removed

    def reload(self, key: str) -> CacheEntry[T] | None:
        """Read one key from the disk again, with exact repair; returns its entry, or None if it has no file.

        For a key whose file could not be read when the cache was opened, or was mended since by another program. A key
        in doubt stays in doubt: only a change resolves that.
        """
        with self._manager._writer.changing(key):
            old = self._entries.get(key)
            if old is None or not old.in_doubt:
                self._swap(key, old, self._read(key))
            return self._entries.get(key)

    def close(self) -> None:
        """Wait for running changes, then release the directory. Reads still work. May be called twice."""
        self._manager.close()

    def __enter__(self) -> CheckpointCache[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CheckpointCache({self._manager!r})"

    def _known(self, keys: Iterable[str]) -> dict[str, CacheEntry[T]]:
        # Not inside a with block: from Python 3.13 on, a handler that raises in a comprehension there skips __exit__.
        return {key: entry for key in keys if (entry := self._entries.get(key))}

    def _load(self) -> None:
        if not self._manager.exclusive:
            why = "a cache needs the directory to itself: open its manager without sharing and read_only"
            raise ValueError(f"{self._manager.path}: {why}")
        with gc_paused():
            loaded = self._manager.load(repair=True)
            self._entries = {key: _entry(checkpoint) for key, checkpoint in loaded.checkpoints.items()}
        for key, problem in loaded.problems.items():
            self._entries[key] = self._without_value(key, problem)
        self.recoveries = loaded.recoveries

    def _read(self, key: str, *, repair: bool = True) -> CacheEntry[T] | None:
        try:
            return _entry(self._manager.get_checkpoint(key))
        except CheckpointNotFound:
            return None
        except PROBLEMS as problem:
            if not repair or not isinstance(problem, CorruptCheckpoint):
                return self._without_value(key, problem)
        with suppress(CheckpointWriteFailed, *PROBLEMS):  # then the damage is still there, and is what counts
            self._manager._recoverer.recover(key)
        return self._read(key, repair=False)

    def _without_value(self, key: str, problem: CheckpointError) -> CacheEntry[T]:
        previous = self._manager.previous_checkpoint(key)
        return CacheEntry(key, None, 0, None, problem, previous.data if previous else None)

    def _write(self, outcomes: Outcomes[T], *, together: bool) -> None:
        """Write to disk, then to memory. From the request to the disk until its answer, every change is in doubt."""
        changes, failures = self._encode(outcomes, together=together)
        headers: Mapping[str, Header] | None = None
        try:
            done = self._manager._writer.commit(changes, together=together)
            failures |= done.failures
            headers = done.headers
        except CheckpointError as error:  # the transaction or the directory as a whole
            failures |= dict.fromkeys(changes, error)
            headers = {}
        finally:
            for key in changes:
                failure = self._interrupted(key) if headers is None else failures.get(key)
                self._conclude(key, outcomes[key], headers.get(key) if headers else None, failure)
        if failures:
            different = {id(failure): failure for failure in failures.values()}
            whole = len(different) == 1 and len(failures) == len(outcomes)
            raise next(iter(different.values())) if whole else BatchFailed(self._manager.path, failures)

    def _encode(self, outcomes: Outcomes[T], *, together: bool) -> tuple[Changes, dict[str, CheckpointError]]:
        """A value that cannot be stored fails a transaction; in a batch it fails alone."""
        changes: Changes = {}
        failures: dict[str, CheckpointError] = {}
        for key, outcome in outcomes.items():
            try:
                encoded = None if outcome is REMOVED else self._manager._schema.encode(outcome)
                changes[check_key(key)] = (encoded, None)
            except UnstorableValue as error:
                if together:
                    raise TransactionFailed(key, self._manager.path_of(key), error) from error
                failures[key] = error
        return changes, failures

    def _conclude(
        self,
        key: str,
        outcome: T | Literal[Removal.REMOVED],
        written: Header | None,
        failure: CheckpointError | None,
    ) -> None:
        """Store in memory what the disk certainly holds, and what it may hold instead."""
        old = self._entries.get(key)
        if failure is None:
            entry = None if outcome is REMOVED or written is None else self._entry_of(written, outcome)
            self._swap(key, old, entry)
        elif getattr(failure, "in_doubt", False) and (old or outcome is not REMOVED):
            known: CacheEntry[T] = old or CacheEntry(key, None, 0)
            earlier = known.in_doubt.outcomes if known.in_doubt else ()
            self._swap(key, old, known._replace(in_doubt=InDoubt(failure, (*earlier, outcome))))

    def _entry_of(self, header: Header, value: T) -> CacheEntry[T]:
        return _entry(self._manager._reader.checkpoint(header, value))

    def _swap(self, key: str, old: CacheEntry[T] | None, new: CacheEntry[T] | None) -> None:
        with self._swapping:
            if new is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = new
            if self._on_swap and (old or new):
                self._on_swap(key, old, new)

    def _not_found(self, key: str) -> CheckpointNotFound:
        try:
            return CheckpointNotFound(key, self._manager.path_of(key))
        except InvalidKey:  # which no checkpoint can have, so it is absent too
            return CheckpointNotFound(key, self._manager.path)

    def _interrupted(self, key: str) -> CheckpointError:
        error = OSError(errno.EINTR, "the change was interrupted")
        return CheckpointWriteFailed(key, self._manager.path_of(key), error, in_doubt=True)


def key_list(keys: Iterable[str]) -> list[str]:
    """The keys of a change. A lone str would be taken for its characters."""
    if isinstance(keys, str):
        raise TypeError(f"change takes a list of keys: write [{keys!r}]")
    return list(keys)


def _entry(checkpoint: Checkpoint[T]) -> CacheEntry[T]:
    return CacheEntry(checkpoint.key, checkpoint.data, checkpoint.generation, checkpoint.from_this_boot)
