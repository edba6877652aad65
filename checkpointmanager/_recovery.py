"""Recovers a damaged checkpoint: first makes a plan, at no risk, then applies it if the caller decides to.

The library never rolls back on its own; only load(repair=True) and a CheckpointCache make exact repairs without a
plan. If nothing can be done, nothing is touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from xxhash import xxh3_128_digest

from ._checkpoint import Checkpoint, Loaded, Outcome, Recovery
from ._errors import (
    CheckpointError,
    CheckpointNotFound,
    CheckpointTooNew,
    CheckpointWriteFailed,
    CorruptCheckpoint,
    DirectoryLocked,
    ManagerClosed,
    PlanOutdated,
    SchemaMismatch,
    WrongKind,
)
from ._events import Event, EventKind, Events
from ._reader import Found, Reader
from ._store import Store
from ._writer import Writer, shortage
from .format import MAX_GENERATION, SHORTAGES, Damaged, Reason, SearchBudget, TooNew, open_sealed, repair, seal

if TYPE_CHECKING:
    from ._manager import CheckpointManager

T = TypeVar("T")


class Cure(NamedTuple):
    """The bytes that would replace the damaged ones."""

    blob: bytes
    detail: str
    found: Found[Any] | None  # the content of the bytes, if the program can use it
    rollback_to: int = 0  # the generation that they restore; 0 for an exact repair
    comes_from: bytes = b""  # the digest of that generation's bytes
    mismatch: SchemaMismatch | None = None  # the bytes are whole again, but do not fit the program


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Made by plan_recovery, which takes no lock. Nothing has happened yet; apply() acts.

    `outcome` is what apply() returns without further consent: INTACT, REPAIRED, NEEDS_ROLLBACK or HOPELESS. `detail`
    says the same in words, and `lost` says what is lost at best. `reason` and `damage` say what is wrong with the file
    at `path`, the checkpoint of `key`.
    """

    key: str
    path: str
    outcome: Outcome
    detail: str
    lost: str = "nothing"
    reason: Reason | None = None
    damage: str = ""
    rollback_to: int = 0  # the generation that rollback=True restores, if there is no exact repair
    _seen: bytes = field(kw_only=True, repr=False)  # the digest of the bytes that the plan is about
    _cure: Cure | None = field(default=None, kw_only=True, repr=False)
    _found: Found[Any] | None = field(default=None, kw_only=True, repr=False)  # set if the file is intact
    _made_by: Recoverer[Any] = field(kw_only=True, repr=False, compare=False)

    @property
    def exact(self) -> bool:
        """True if apply() restores exactly the bytes that were written, as the checksum proves."""
        return self.outcome is Outcome.REPAIRED

    def apply(
        self, *, rollback: bool = False, discard: bool = False, manager: CheckpointManager[Any] | None = None
    ) -> Recovery:
        """Carry out the plan under the lock, after a copy of the damaged bytes has gone to quarantine.

        Raises PlanOutdated if the file has changed since the plan was made. rollback=True consents to losing the
        last acknowledged change, if that is needed. discard=True consents to removing a hopeless file, which
        happens only when its bytes are safe in quarantine. If the manager that made the plan is read-only, pass
        another `manager` of the same directory.
        """
        recoverer = self._made_by if manager is None else manager._recoverer
        return recoverer.apply(self, rollback=rollback, discard=discard)

    @property
    def _after(self) -> Found[Any] | None:
        """The checkpoint in place after apply() without further consent, if there is one."""
        return self._cure.found if self._cure and self.exact else self._found


@dataclass(slots=True)
class _Repairs:
    """What one load has repaired, and what it may still spend on repairs."""

    made: dict[str, Recovery] = field(default_factory=dict)
    budget: SearchBudget = field(default_factory=SearchBudget)
    refused: bool = False  # another process has the lock: wait for it once, not once per file


class Recoverer(Generic[T]):
    """Makes and carries out recovery plans for one manager."""

    def __init__(self, store: Store, reader: Reader[T], writer: Writer, events: Events) -> None:
        self._store = store
        self._reader = reader
        self._writer = writer
        self._events = events

    def load(self) -> Loaded[T]:
        """Load everything, and repair exactly what can be repaired."""
        repairs = _Repairs()
        loaded = self._reader.load(partial(self._get_repaired, repairs))
        return Loaded(loaded.checkpoints, loaded.problems, repairs.made)

    def plan(self, key: str, *, budget: SearchBudget | None = None, report: bool = True) -> RecoveryPlan:
        """Takes no lock. Emits a damage event, unless the caller has already reported it."""
        self._writer.forget(key)
        path = self._store.path_of(key)
        seen = self._look(key)
        if not seen.damage:
            detail = "the checkpoint is whole"
            return RecoveryPlan(key, path, Outcome.INTACT, detail, _seen=seen.digest, _found=seen.found, _made_by=self)
        what, why = seen.damage.detail, seen.damage.reason
        if report:
            self._events.emit(Event(EventKind.DAMAGE, path, what, key, why))
        cure = self._exact(key, seen.blob, budget) or self._previous(key)
        outcome, detail, lost = _forecast(what, cure)
        facts = (key, path, outcome, detail, lost, why, what, cure.rollback_to if cure else 0)
        return RecoveryPlan(*facts, _seen=seen.digest, _cure=cure, _made_by=self)

    def apply(self, plan: RecoveryPlan, *, rollback: bool, discard: bool) -> Recovery:
        """Carry out a plan that may be old, and may come from another manager of the same directory."""
        if plan.path != self._store.path_of(plan.key):
            raise ValueError(f"the plan is for {plan.path}, but the manager is for {self._store.path}")
        with self._writer.changing(plan.key):
            self._refuse_if_outdated(plan)
            return self.carry_out(plan, rollback=rollback, discard=discard)

    def recover(self, key: str, *, rollback: bool = False) -> Recovery:
        """Plan and carry out. The caller holds the key."""
        return self.carry_out(self.plan(key), rollback=rollback)

    def carry_out(self, plan: RecoveryPlan, *, rollback: bool = False, discard: bool = False) -> Recovery:
        """Carry out a plan. The caller holds the key, and nothing has changed since the plan was made."""
        key, reason, cure = plan.key, plan.reason, plan._cure
        if reason is None or (cure is None and not discard) or (plan.rollback_to and not rollback):
            return Recovery(key, plan.outcome, plan.detail, rollback_to=plan.rollback_to)
        if cure is None:
            kept = self._writer.discard_damaged(key, reason)
            return Recovery(key, Outcome.DISCARDED, "removed; readers find no checkpoint from now on", kept)
        outcome = Outcome.ROLLED_BACK if cure.rollback_to else Outcome.REPAIRED
        kept = self._writer.replace_damaged(key, reason, cure.blob)
        kind = EventKind.ROLLED_BACK if cure.rollback_to else EventKind.RECOVERED
        self._events.emit(Event(kind, plan.path, cure.detail, key, reason))
        if cure.mismatch:
            raise cure.mismatch
        return Recovery(key, outcome, cure.detail, kept)

    def _get_repaired(self, repairs: _Repairs, key: str) -> Checkpoint[T]:
        """If the repair fails, the error is still that of the damage."""
        try:
            return self._reader.get(key)
        except CorruptCheckpoint:
            if repairs.refused:
                raise
            try:
                with self._writer.changing(key):
                    plan = self.plan(key, budget=repairs.budget, report=False)
                    if plan.exact:
                        repairs.made[key] = self.carry_out(plan)
                if found := plan._after:
                    return self._reader.checkpoint(found.header, found.data)
            except DirectoryLocked:
                repairs.refused = True
            except (CheckpointNotFound, CheckpointTooNew, SchemaMismatch, WrongKind, ManagerClosed):
                raise  # the file is not merely damaged any more, or the manager is closed
            except CheckpointError:
                pass
            raise

    def _refuse_if_outdated(self, plan: RecoveryPlan) -> None:
        try:
            same = self._glance(plan.key).digest == plan._seen
            if plan._cure and plan._cure.rollback_to:
                same = same and _digest(self._store.read(plan.key, previous=True)) == plan._cure.comes_from
        except CheckpointWriteFailed:
            raise  # a lack of memory or descriptors says nothing about the file
        except (Damaged, CheckpointError) as error:
            raise PlanOutdated(plan.key, plan.path) from error
        if not same:
            raise PlanOutdated(plan.key, plan.path)

    def _look(self, key: str) -> _Sight[T]:
        """Read twice before reporting damage, as every reader does. The plan is for the bytes of the last read."""
        seen = self._glance(key)
        if seen.damage:
            seen = self._glance(key)
        return seen

    def _glance(self, key: str) -> _Sight[T]:
        blob = b""
        try:
            blob = self._store.read(key)
            return _Sight(blob, self._reader.understand(key, blob))
        except Damaged as damage:
            if damage.errno in SHORTAGES:
                raise shortage(key, self._store.path_of(key), damage.errno) from damage
            return _Sight(blob, None, damage)
        except TooNew as too_new:
            raise CheckpointTooNew(key, self._store.path_of(key), str(too_new)) from None

    def _exact(self, key: str, blob: bytes, budget: SearchBudget | None) -> Cure | None:
        """The exact bytes that were written, and therefore the same generation."""
        mended = repair(blob, budget)
        if mended is None:
            return None
        try:
            found = self._reader.understand(key, mended.blob)
        except SchemaMismatch as mismatch:
            return Cure(mended.blob, mended.finding, None, mismatch=mismatch)
        except (Damaged, TooNew, CheckpointError):
            return None
        return Cure(mended.blob, mended.finding, found)

    def _beside(self, key: str) -> tuple[bytes, Found[T]] | None:
        """The previous generation, if it is whole and this program can read it."""
        try:
            blob = self._store.read(key, previous=True)
            return blob, self._reader.understand(key, blob)
        except Damaged as damage:
            if damage.errno in SHORTAGES:
                raise shortage(key, self._store.path_of(key), damage.errno) from damage
            return None
        except (TooNew, CheckpointError):
            return None

    def _previous(self, key: str) -> Cure | None:
        """The previous generation, renumbered above every generation seen. It keeps the boot and time of its data."""
        beside = self._beside(key)
        if beside is None:
            return None
        before, found = beside
        header, data = open_sealed(before, key)
        generation = max(self._reader.highest_generation(key), header.generation + 1) + 1
        if generation > MAX_GENERATION:
            return None
        detail = (
            f"generation {header.generation}, written {header.written:%Y-%m-%d %H:%M:%S} UTC, comes back "
            f"as generation {generation}; what was written after it is lost"
        )
        header = header._replace(generation=generation)
        return Cure(seal(header, data), detail, found, found.header.generation, _digest(before))


def _forecast(damage: str, cure: Cure | None) -> tuple[Outcome, str, str]:
    """The outcome without further consent, a description, and the least that is lost."""
    if cure is None:
        return Outcome.HOPELESS, f"{damage}: no exact repair, and no previous generation", "all of it"
    if cure.rollback_to:
        detail = f"{damage}: no exact repair; with rollback {cure.detail}"
        return Outcome.NEEDS_ROLLBACK, detail, f"what was written after generation {cure.rollback_to}"
    return Outcome.REPAIRED, cure.detail, "nothing"


class _Sight(NamedTuple, Generic[T]):
    blob: bytes  # empty if the file could not be read
    found: Found[T] | None
    damage: Damaged | None = None

    @property
    def digest(self) -> bytes:
        """Changes with the file, or, if there were no bytes to read, with the reason why."""
        return _digest(self.blob or str(self.damage).encode())


def _digest(blob: bytes) -> bytes:
    return xxh3_128_digest(blob)
