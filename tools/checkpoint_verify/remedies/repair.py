"""Repairs with the library's own recovery: first makes plans, which change nothing, then applies the same plans.

The tool knows no schemas, so it accepts every kind of data. Root acts as the agent's user.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from checkpointmanager import (
    CheckpointError,
    CheckpointManager,
    FileOptions,
    Outcome,
    Reason,
    RecoveryPlan,
)

from ..etcd import refresh
from ..findings.access import AgentUser
from ..findings.examine import examine_path
from ..findings.finding import Finding, State
from ..screens import phrases
from ..targets import Target
from .owner import Blocked, owned

Work = Callable[["Step", CheckpointManager[Any], AgentUser | None], None]

_ACTIONS = {
    Outcome.INTACT: "good",
    Outcome.REPAIRED: "repaired",
    Outcome.ROLLED_BACK: "rolled-back",
    Outcome.DISCARDED: "discarded",
}


@dataclass(slots=True)
class Step:
    """What will be done, or was done, about one file."""

    target: Target
    found: Finding
    plan: RecoveryPlan | None = None
    action: str = ""  # repaired, rolled-back, discarded, good, left
    detail: str = ""
    quarantined: str = ""
    failed: bool = False

    @property
    def is_open(self) -> bool:
        """True while the damage is still there."""
        return self.action == "left"

    @property
    def is_change(self) -> bool:
        """True if the file was changed, or will be."""
        return self.action not in ("left", "good")

    def leave(self, why: str) -> None:
        """Record that the file stays damaged, and why."""
        self.action, self.failed, self.detail = "left", True, why


class Repairer:
    """Works on the damaged keys of one directory, as far as the operator's options allow."""

    def __init__(self, directory: str, *, rollback: bool, discard: bool) -> None:
        self._directory = directory
        self._rollback = rollback
        self._discard = discard
        self.blocked = ""  # why nothing could be done, in a sentence

    def plan(self, steps: Sequence[Step]) -> None:
        """Plan what to do about each file; takes no lock and changes nothing."""

        def plan(step: Step, manager: CheckpointManager[Any], user: AgentUser | None) -> None:
            step.plan = manager.plan_recovery(step.target.key)
            if user and step.plan.reason is Reason.UNREADABLE:
                step.leave(_cannot_read(step, step.plan, user))
            else:
                self._foresee(step, step.plan)

        self._for_each(steps, plan, read_only=True)

    def operate(self, steps: Sequence[Step]) -> None:
        """Become the owner of the directory, and apply the plans."""

        def operate(step: Step, manager: CheckpointManager[Any], _: AgentUser | None) -> None:
            assert step.plan
            done = step.plan.apply(rollback=self._rollback, discard=self._discard, manager=manager)
            step.action = _ACTIONS.get(done.outcome, "left")
            step.detail, step.quarantined = done.detail, done.quarantined
            _read_back(step)

        self._for_each(steps, operate, owner="checkpoint-verify repair")

    def _foresee(self, step: Step, plan: RecoveryPlan) -> None:
        step.detail = plan.detail.replace("with rollback ", "with --rollback ")
        if plan.outcome is Outcome.NEEDS_ROLLBACK:
            step.action = "rolled-back" if self._rollback else "left"
        elif plan.outcome is Outcome.HOPELESS:
            step.action = "discarded" if self._discard else "left"
            discard = "it is removed" if self._discard else "--discard removes it"
            step.detail += f"; {discard}, and the agent starts this key anew"
        else:
            step.action = _ACTIONS[plan.outcome]

    def _for_each(self, steps: Sequence[Step], work: Work, **options: Unpack[FileOptions]) -> None:
        try:
            with owned(self._directory, **options) as (manager, user):
                for step in steps:
                    try:
                        work(step, manager, user)
                    except (CheckpointError, OSError) as error:
                        step.leave(str(error))
        except Blocked as why:
            self.block(steps, str(why))

    def block(self, steps: Sequence[Step], why: str) -> None:
        """Record that nothing can be done."""
        self.blocked = why
        for step in steps:
            step.leave(why)


def _cannot_read(step: Step, plan: RecoveryPlan, user: AgentUser) -> str:
    give = f"chown {user.uid}:{user.gid} {phrases.quoted(step.target.path)}"
    return f"{user}, who owns the directory, cannot read the file: {plan.damage}. If it belongs to the agent: {give}"


def _read_back(step: Step) -> None:
    """Read a repaired file again; it must be good."""
    if step.action in ("repaired", "rolled-back"):
        refresh(step.target.path)
        again = examine_path(step.target.path)
        if again.state is not State.GOOD:
            step.action, step.detail = "left", f"written, but still {again.state}: {again.detail}"
