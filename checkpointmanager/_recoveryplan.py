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
    found: Found[Any] | None  # the content of the bytes, if the program can use it
    rollback_to: int = 0  # the generation that they restore; 0 for an exact repair
    comes_from: bytes = b""  # the digest of that generation's bytes
    mismatch: SchemaMismatch | None = None  # the bytes are whole again, but do not fit the program


@dataclass(frozen=True, slots=True)
class PlannedRecovery:
    """The facts of a plan.

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

    @property
    def exact(self) -> bool:
        """True if apply() restores exactly the bytes that were written, as the checksum proves."""
        return self.outcome is Outcome.REPAIRED


@dataclass(frozen=True, slots=True)
class RecoveryPlan(PlannedRecovery):
    """Made by plan_recovery, which takes no lock. Nothing has happened yet; apply() acts."""

    _seen: bytes = field(kw_only=True, repr=False)  # the digest of the bytes that the plan is about
    _cure: Cure | None = field(default=None, kw_only=True, repr=False)
    _found: Found[Any] | None = field(default=None, kw_only=True, repr=False)  # set if the file is intact
    _made_by: Recoverer[Any] = field(kw_only=True, repr=False, compare=False)

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
