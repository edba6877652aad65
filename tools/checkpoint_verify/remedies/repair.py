"""Repairs with the library's own recovery: first makes plans, which change nothing, then applies the same plans.

The tool knows no schemas, so it accepts every kind of data. Root acts as the agent's user.
"""

from __future__ import annotations

import errno
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
from ..screens.screen import Progress
from ..targets import Target
from .owner import Blocked, owned

Work = Callable[["Step", CheckpointManager[Any], AgentUser | None], None]

_ACTIONS = {
    Outcome.INTACT: "good",
    Outcome.REPAIRED: "repaired",
    Outcome.ROLLED_BACK: "rolled-back",
    Outcome.DISCARDED: "discarded",
}
_FUTURE = {  # the library describes an exact repair as done
    "and was set back": "and will be set back",
    "bytes cut off": "bytes will be cut off",
    "bytes restored": "bytes will be restored",
    "was reformatted, and is compact again": "was reformatted, and will be compact again",
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
    errno: int = 0  # of the failure

    @property
    def is_open(self) -> bool:
        """True if nothing was done about the file, or will be."""
        return self.action == "left"

    @property
    def is_damaged(self) -> bool:
        """True if the file is still damaged, or will be."""
        return self.is_open and self.found.state is State.DAMAGED

    @property
    def is_change(self) -> bool:
        """True if the file was changed, or will be."""
        return self.action not in ("left", "good")

    def leave(self, why: str, errno: int = 0) -> None:
        """Record that the file stays damaged, and why."""
        self.action, self.failed, self.detail, self.errno = "left", True, why, errno


class Repairer:
    """Works on the damaged keys of one directory, as far as the operator's options allow."""

    def __init__(self, directory: str, *, rollback: bool, discard: bool) -> None:
        self._directory = directory
        self._rollback = rollback
        self._discard = discard
        self.blocked = ""  # why nothing could be done, in a sentence
        self.interrupted = False
        self._done = 0  # steps, whether or not they succeeded

    def plan(self, steps: Sequence[Step], bar: Progress) -> None:
        """Plan what to do about each file; takes no lock and changes nothing."""

        def plan(step: Step, manager: CheckpointManager[Any], user: AgentUser | None) -> None:
            step.plan = manager.plan_recovery(step.target.key)
            if user and step.plan.reason is Reason.UNREADABLE:
                step.leave(_cannot_read(step, step.plan, user))
            else:
                self._foresee(step, step.plan)

        self._for_each(steps, plan, bar, read_only=True)

    def operate(self, steps: Sequence[Step], bar: Progress) -> None:
        """Become the owner of the directory, and apply the plans. After Ctrl-C, each step says what it came to."""

        def operate(step: Step, manager: CheckpointManager[Any], _: AgentUser | None) -> None:
            assert step.plan
            recovery = step.plan.apply(rollback=self._rollback, discard=self._discard, manager=manager)
            step.action = _ACTIONS.get(recovery.outcome, "left")
            step.detail, step.quarantined = recovery.detail, recovery.quarantined
            _read_back(step)

        try:
            self._for_each(steps, operate, bar, owner="checkpoint-verify repair")
        except KeyboardInterrupt:
            self.interrupted = True
            for step in steps[self._done :]:
                _see_what_it_came_to(step)

    def _foresee(self, step: Step, plan: RecoveryPlan) -> None:
        step.detail = plan.detail.replace("with rollback ", "with --rollback ")
        if plan.outcome is Outcome.NEEDS_ROLLBACK:
            step.action = "rolled-back" if self._rollback else "left"
        elif plan.outcome is Outcome.HOPELESS:
            step.action = "discarded" if self._discard else "left"
            discard = "it will be removed" if self._discard else "--discard removes it"
            step.detail += f"; {discard}, and the agent starts this key anew"
        else:
            step.action = _ACTIONS[plan.outcome]
            for done, will in _FUTURE.items():
                step.detail = step.detail.replace(done, will)

    def _for_each(self, steps: Sequence[Step], work: Work, bar: Progress, **options: Unpack[FileOptions]) -> None:
        bar.expect(len(steps))
        self._done = 0
        try:
            with owned(self._directory, **options) as (manager, user):
                for step in steps:
                    try:
                        work(step, manager, user)
                    except (CheckpointError, OSError) as error:
                        step.leave(str(error), getattr(error, "errno", 0) or 0)
                    self._done += 1
                    bar.step()
        except Blocked as why:
            self.block(steps, str(why))

    def block(self, steps: Sequence[Step], why: str) -> None:
        """Record that nothing can be done."""
        self.blocked = why
        for step in steps:
            step.leave(why)


def _see_what_it_came_to(step: Step) -> None:
    """The file of a step that was interrupted, or never begun, shows whether it was replaced."""
    refresh(step.target.path)
    now = examine_path(step.target.path)
    if now.state is State.GOOD or now.errno == errno.ENOENT:
        step.detail = "interrupted when it had just been changed"
    else:
        step.leave("interrupted before it was changed")


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
