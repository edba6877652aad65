"""Values by key in memory, in front of a manager: what every agent would otherwise write by hand.

Reads take no lock and never wait: an entry is immutable and is swapped in one step. Writers of different keys do
not wait for each other. The disk comes first: what a reader sees has been durable before.
"""

from __future__ import annotations

import copy
import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from types import TracebackType
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, cast, overload

from ._batch import Batch
from ._checkpoint import Checkpoint, Recovery
from ._errors import (
    BatchFailed,
    CheckpointError,
    CheckpointNotFound,
    CheckpointWriteFailed,
    ManagerClosed,
    TransactionFailed,
    UnstorableValue,
)
from ._gcpause import gc_paused
from ._keylocks import KeyLocks
from ._manager import CheckpointManager
from ._transaction import Transaction

T = TypeVar("T")
D = TypeVar("D")


class Removal(Enum):
    """Stands for a value where a change removes the key, and where a removal is in doubt."""

    REMOVED = "removed"  # the only member


REMOVED: Final = Removal.REMOVED
"""Return it from the function given to CheckpointCache.change to remove a key."""


class InDoubt(NamedTuple, Generic[T]):
    """Changes of one key that failed, and may be on the disk or not: the last failure, and all outcomes."""

    error: CheckpointError  # of the last change that failed
    outcomes: tuple[T | Literal[Removal.REMOVED], ...]

    def __repr__(self) -> str:
        return f"InDoubt({type(self.error).__name__}, {len(self.outcomes)} outcomes)"


class CacheEntry(NamedTuple, Generic[T]):
    """What is known of one key. It never prints its values.

    value           the last one that was acknowledged, if `generation` is not 0
    generation      that of the value; 0 if there is none, because the file cannot be trusted, or is new and in doubt
    from_this_boot  whether the value was written since the last reboot; None where that is not known
    problem         why the file cannot be trusted
    previous        what the generation before such a file said; to be looked at, not to be trusted
    in_doubt        what the disk may hold instead
    """

    key: str
    value: T | None
    generation: int
    from_this_boot: bool | None = None
    problem: CheckpointError | None = None
    previous: T | None = None
    in_doubt: InDoubt[T] | None = None

    def __repr__(self) -> str:
        problem = f", {type(self.problem).__name__}" if self.problem else ""
        doubt = f", {self.in_doubt!r}" if self.in_doubt else ""
        return f"CacheEntry({self.key!r}, generation {self.generation}{problem}{doubt})"


Entries = Mapping[str, CacheEntry[T]]
Outcomes = Mapping[str, T | Literal[Removal.REMOVED]]
Swap = Callable[[str, CacheEntry[T] | None, CacheEntry[T] | None], object]


class CheckpointCache(Generic[T]):
    """The checkpoints of a manager in memory, rebuilt from it when the cache is made, and kept equal to the disk.

        cache = CheckpointCache(CheckpointManager("/var/lib/agent/leases", LEASES))
        cache.put("pod-7", Lease("node-a"))         # durable, then visible
        cache["pod-7"]                              # from memory

    The cache takes the manager over, and closes it. Damage that can be repaired exactly is repaired first; see
    `recoveries`. A key whose file cannot be trusted is present but has no value: reading it raises its problem,
    until it is written anew or deleted. If a change fails in doubt, the old value is served and
    `entry(key).in_doubt` has the new one; the next change that succeeds settles it. Values are shared with the
    readers, so treat them as immutable.

    `on_swap(key, old, new)` is called with the old and the new entry (None: no such key) whenever one replaces the
    other, in the thread that made the change and before any other change of that key, so that indexes and flags of
    its user change in the same step. It is not called for what is there at first. It must not raise, nor change
    the cache.
    """

    def __init__(self, manager: CheckpointManager[T], *, on_swap: Swap[T] | None = None) -> None:
        self._manager = manager
        self._process = os.getpid()
        self._on_swap = on_swap
        self._locks = KeyLocks()  # held while a key is written
        self._swapping = threading.Lock()  # guards changes of _entries; readers do without
        self._entries: dict[str, CacheEntry[T]] = {}
        self.recoveries: Mapping[str, Recovery] = {}
        try:
            self._load()
        except BaseException:
            manager.close()
            raise

    def __getitem__(self, key: str) -> T:
        """The value; CheckpointNotFound (a KeyError) if there is none, and the key's problem if it is not known."""
        entry = self._entries.get(key)
        if entry is None:
            raise CheckpointNotFound(key, self._manager.path_of(key))
        if not entry.generation:
            raise copy.copy(_problem(entry))
        return cast("T", entry.value)

    @overload
    def get(self, key: str) -> T | None: ...
    @overload
    def get(self, key: str, default: D) -> T | D: ...
    def get(self, key: str, default: Any = None) -> Any:
        """The same, with `default` for a key that is not there, and only for that."""
        return self[key] if key in self._entries else default

    def entry(self, key: str) -> CacheEntry[T] | None:
        """All that is known of a key; never raises."""
        return self._entries.get(key)

    def entries(self) -> list[CacheEntry[T]]:
        """All keys as they are now, also those that cannot be trusted."""
        return list(self._entries.values())

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def problems(self) -> Mapping[str, CheckpointError]:
        """The keys that cannot be trusted or are in doubt, each with its error."""
        return {entry.key: _problem(entry) for entry in self.entries() if entry.problem or entry.in_doubt}

    def put(self, key: str, value: T) -> None:
        """Add or replace one value; durable when it returns."""
        self.change([key], lambda _: {key: value})

    def delete(self, *keys: str) -> None:
        """Gone for good when it returns, all of them or none; no error for what is not there."""
        self.change(keys, lambda _: dict.fromkeys(keys, REMOVED))

    def change(
        self, keys: Iterable[str], function: Callable[[Entries[T]], Outcomes[T]], *, independent: bool = False
    ) -> None:
        """Read, change and write several keys, all or none; nobody else changes them meanwhile.

        `function` gets the entries of those keys that exist, and returns new values for those that are to be
        written, or REMOVED. What it raises goes to the caller, and nothing is changed. Several keys are one
        transaction: on disk it happens as a whole or not at all, readers of the cache see its keys change one after
        the other, and its error is TransactionFailed. With independent=True they are one batch, in which each key
        succeeds or fails on its own, and BatchFailed says which. Memory always has exactly what is durable.
        """
        wanted = list(keys)
        if os.getpid() != self._process:  # a lock that another thread had when it forked is never given back
            raise ManagerClosed(self._manager.path, ManagerClosed.FORKED)
        with self._locks.locked(*wanted):
            before = {key: entry for key in wanted if (entry := self._entries.get(key))}
            outcomes = function(before)
            if strangers := outcomes.keys() - set(wanted):
                raise ValueError(f"the change function returned keys that it was not asked for: {sorted(strangers)}")
            if outcomes:
                self._write(outcomes, independent=independent)

    def close(self) -> None:
        """Wait for running changes, then give the directory back. Reads go on. May be called twice."""
        self._manager.close()

    def __enter__(self) -> CheckpointCache[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CheckpointCache({self._manager!r})"

    def _load(self) -> None:
        if not self._manager.exclusive:
            why = "a cache needs the directory to itself, so it is opened neither for sharing nor read-only"
            raise ValueError(f"{self._manager.path}: {why}")
        with gc_paused():
            loaded = self._manager.load(repair=True)
            self._entries = {key: _entry(checkpoint) for key, checkpoint in loaded.checkpoints.items()}
        for key, problem in loaded.problems.items():
            previous = self._manager.previous_checkpoint(key)
            self._entries[key] = CacheEntry(key, None, 0, None, problem, previous.data if previous else None)
        self.recoveries = loaded.recoveries

    def _write(self, outcomes: Outcomes[T], *, independent: bool) -> None:
        """Disk, then memory. Once the disk was asked, everything is in doubt until it has answered."""
        changes = self._manager.batch() if independent or len(outcomes) == 1 else self._manager.transaction()
        failures: dict[str, CheckpointError] | None = None
        asked = False
        try:
            with changes:
                unstorable = self._stage(changes, outcomes)
                asked = True
            failures = unstorable
        except BatchFailed as error:
            failures = unstorable | error.failures
        except CheckpointError as error:  # of the transaction or the directory as a whole
            failures = dict.fromkeys(outcomes, error)
        finally:
            for key, outcome in outcomes.items() if asked else ():
                failure = self._interrupted(key) if failures is None else failures.get(key)
                self._conclude(key, outcome, changes.written.get(key), failure)
        if failures:
            different = {id(failure): failure for failure in failures.values()}
            whole = len(different) == 1 and len(failures) == len(outcomes)
            raise next(iter(different.values())) if whole else BatchFailed(self._manager.path, failures)

    def _stage(self, changes: Batch[T] | Transaction[T], outcomes: Outcomes[T]) -> dict[str, CheckpointError]:
        """Encode them all. A value that cannot be stored ends a transaction; of a batch it costs none of the others."""
        failures: dict[str, CheckpointError] = {}
        for key, outcome in outcomes.items():
            try:
                if outcome is REMOVED:
                    changes.remove_checkpoint(key)
                else:
                    changes.create_checkpoint(key, outcome)
            except UnstorableValue as error:
                if isinstance(changes, Transaction):
                    raise TransactionFailed(key, self._manager.path_of(key), error) from error
                failures[key] = error
        return failures

    def _conclude(
        self,
        key: str,
        outcome: T | Literal[Removal.REMOVED],
        written: Checkpoint[T] | None,
        failure: CheckpointError | None,
    ) -> None:
        """Memory becomes what the disk certainly holds, and what it may hold instead."""
        old = self._entries.get(key)
        if failure is None or getattr(failure, "committed", False):
            self._swap(key, old, None if outcome is REMOVED else _entry(cast("Checkpoint[T]", written)))
        elif getattr(failure, "in_doubt", False) and (old or outcome is not REMOVED):
            known: CacheEntry[T] = old or CacheEntry(key, None, 0)
            earlier = known.in_doubt.outcomes if known.in_doubt else ()
            self._swap(key, old, known._replace(in_doubt=InDoubt(failure, (*earlier, outcome))))

    def _swap(self, key: str, old: CacheEntry[T] | None, new: CacheEntry[T] | None) -> None:
        with self._swapping:
            if new is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = new
            if self._on_swap and (old or new):
                self._on_swap(key, old, new)

    def _interrupted(self, key: str) -> CheckpointError:
        error = OSError(errno.EINTR, "the change was interrupted")
        return CheckpointWriteFailed(key, self._manager.path_of(key), error, in_doubt=True)


def _problem(entry: CacheEntry[Any]) -> CheckpointError:
    assert entry.problem or entry.in_doubt
    return entry.problem or cast("InDoubt[Any]", entry.in_doubt).error


def _entry(checkpoint: Checkpoint[T]) -> CacheEntry[T]:
    return CacheEntry(checkpoint.key, checkpoint.data, checkpoint.generation, checkpoint.from_this_boot)
