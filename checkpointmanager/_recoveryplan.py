"""What could be done about one checkpoint, and at what cost, for a person or program to decide. See _recovery.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ._checkpoint import Outcome, Recovery
from ._errors import SchemaMismatch
from ._format.reason import Reason
from ._reader import Found

if TYPE_CHECKING:
    from ._manager import CheckpointManager
    from ._recovery import Recoverer


class Cure(NamedTuple):
    """The bytes that would replace the damaged ones."""

    blob: bytes
    detail: str
    found: Found[Any] | None  # what the bytes say, if the program can use them
    rollback_to: int = 0  # the generation that they go back to; 0 for an exact repair
    comes_from: bytes = b""  # the digest of that generation's own bytes
    mismatch: SchemaMismatch | None = None  # whole again, but the program does not fit it


@dataclass(frozen=True, slots=True)
class PlannedRecovery:
    """The facts of a plan.

    `outcome` is that of apply() without further consent: INTACT, REPAIRED, NEEDS_ROLLBACK or HOPELESS. `detail`
    says the same in words, and `lost` what is lost at best. `reason` and `damage` say what is wrong with the file,
    whose `key` and `path` are given.
    """

    key: str
    path: str
    outcome: Outcome
    detail: str
    lost: str = "nothing"
    reason: Reason | None = None
    damage: str = ""
    rollback_to: int = 0  # the generation that rollback=True goes back to, where that is all that is left

    @property
    def exact(self) -> bool:
        """True if apply() puts back the very bytes that were once written, as the checksum proves."""
        return self.outcome is Outcome.REPAIRED


@dataclass(frozen=True, slots=True)
class RecoveryPlan(PlannedRecovery):
    """Made by plan_recovery, which takes no lock. Nothing has happened yet; apply() acts."""

    _seen: bytes = field(kw_only=True, repr=False)  # the digest of the bytes that the plan is about
    _cure: Cure | None = field(default=None, kw_only=True, repr=False)
    _found: Found[Any] | None = field(default=None, kw_only=True, repr=False)  # if it is intact
    _made_by: Recoverer[Any] = field(kw_only=True, repr=False, compare=False)

    def apply(
        self, *, rollback: bool = False, discard: bool = False, manager: CheckpointManager[Any] | None = None
    ) -> Recovery:
        """Do it under the lock, the damaged bytes kept first. PlanOutdated if the file has changed since the plan.

        rollback=True is the consent to lose the last acknowledged change, where that is needed; discard=True is the
        consent to remove what is hopeless, which is done only when its bytes are safe in quarantine. `manager` is
        another one of the same directory, where the one that made the plan was opened with read_only=True.
        """
        recoverer = self._made_by if manager is None else manager._recoverer
        return recoverer.apply(self, rollback=rollback, discard=discard)

    @property
    def _after(self) -> Found[Any] | None:
        """What stands there when apply() has done its work without further consent, if that is a checkpoint."""
        return self._cure.found if self._cure and self.exact else self._found
