"""Loads one checkpoint or a whole directory; one bad file is reported and affects no other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ._checkpoint import Checkpoint, Loaded, Recovery, Verified
from ._errors import (
    CheckpointError,
    CheckpointNotFound,
    CheckpointTooNew,
    CorruptCheckpoint,
    DirectoryLocked,
    ManagerClosed,
    SchemaMismatch,
    WrongKind,
)
from ._format.repair import SearchBudget
from ._gcpause import gc_paused
from ._readahead import read_ahead
from ._reader import Found, Reader
from ._recovery import Recoverer
from ._store import Store
from ._writer import Writer

T = TypeVar("T")


@dataclass(slots=True)
class _Repairs:
    """What one load has repaired, and what it may still spend on repairs."""

    made: dict[str, Recovery] = field(default_factory=dict)
    budget: SearchBudget = field(default_factory=SearchBudget)
    refused: bool = False  # another process has the lock: wait for it once, not once per file


class Loader(Generic[T]):
    """All reads of a manager. Makes the writer forget a bad checkpoint, so that its next write is never "unchanged"."""

    def __init__(self, store: Store, reader: Reader[T], writer: Writer, recoverer: Recoverer[T]) -> None:
        self._store = store
        self._reader = reader
        self._writer = writer
        self._recoverer = recoverer

    def read(self, key: str) -> Found[T]:
        try:
            return self._reader.read(key)
        except CheckpointError:
            self._writer.forget(key)
            raise

    def get(self, key: str) -> Checkpoint[T]:
        found = self.read(key)
        return self._reader.checkpoint(found.header, found.data)

    def load(self, *, repair: bool) -> Loaded[T]:
        checkpoints: dict[str, Checkpoint[T]] = {}
        problems: dict[str, CheckpointError] = {}
        repairs = _Repairs()
        with gc_paused():
            for key in read_ahead(self._store, sorted(self._store.keys())):
                try:
                    checkpoints[key] = self._get_repaired(key, repairs) if repair else self.get(key)
                except (CorruptCheckpoint, CheckpointTooNew, SchemaMismatch, WrongKind) as problem:
                    problems[key] = problem
                except CheckpointNotFound:
                    continue  # removed since the directory was listed
        return Loaded(checkpoints, problems, repairs.made)

    def verify(self) -> Verified:
        intact = 0
        problems: dict[str, CheckpointError] = {}
        for key in read_ahead(self._store, sorted(self._store.keys())):
            try:
                self._reader.verify(key)
                intact += 1
            except (CorruptCheckpoint, CheckpointTooNew, WrongKind) as problem:
                self._writer.forget(key)
                problems[key] = problem
            except CheckpointNotFound:
                continue
        return Verified(intact, problems)

    def _get_repaired(self, key: str, repairs: _Repairs) -> Checkpoint[T]:
        """If the repair fails, the error is still that of the damage."""
        try:
            return self.get(key)
        except CorruptCheckpoint:
            if repairs.refused:
                raise
            try:
                with self._writer.changing(key):
                    plan = self._recoverer.plan(key, budget=repairs.budget, report=False)
                    if plan.exact:
                        repairs.made[key] = self._recoverer.carry_out(plan)
                if found := plan._after:
                    return self._reader.checkpoint(found.header, found.data)
            except DirectoryLocked:
                repairs.refused = True
            except (CheckpointNotFound, CheckpointTooNew, SchemaMismatch, WrongKind, ManagerClosed):
                raise  # the file is not merely damaged any more, or the manager is closed
            except CheckpointError:
                pass
            raise
