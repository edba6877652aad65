"""Repairs with the library's own recovery: first makes plans, which change nothing, then applies the same plans.

The tool knows no schemas, so it accepts every kind of data. Root acts as the agent's user.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from checkpointmanager import (
    CheckpointManager,
    FileOptions,
    Outcome,
    Reason,
    RecoveryPlan,
)
from checkpointmanager.format import Damaged, TooNew, open_any

from ..etcd import refresh
from ..findings import disk
from ..findings.access import AgentUser
from ..findings.examine import examine_path
from ..findings.finding import State
from ..findings.journal import waiting_in
from ..screens import phrases
from ..screens.screen import Progress
from .owner import Blocked, each_step, leave_the_rest, owned, owned_store
from .restore import put_back, take_away
from .step import Step

Work = Callable[[Step, CheckpointManager[Any], AgentUser | None], None]

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


class Repairer:
    """Works on the damaged keys of one directory, as far as the operator's options allow."""

    def __init__(self, directory: str, *, rollback: bool, discard: bool) -> None:
        self._directory = directory
        self._rollback = rollback
        self._discard = discard
        self.blocked = ""  # why nothing could be done, in a sentence
        self.interrupted = False

    def plan(self, steps: Sequence[Step], bar: Progress) -> None:
        """Plan what to do about each file; takes no lock and changes nothing."""

        def plan(step: Step, manager: CheckpointManager[Any], user: AgentUser | None) -> None:
            step.plan = manager.plan_recovery(step.target.real_key)
            if user and step.plan.reason is Reason.UNREADABLE:
                step.leave(_cannot_read(step, step.plan, user))
            else:
                self._foresee(step, step.plan)

        if self._for_each(steps, plan, bar, read_only=True) < len(steps):
            raise KeyboardInterrupt

    def operate(self, steps: Sequence[Step], bar: Progress) -> None:
        """Become the owner of the directory, and apply the plans. After Ctrl-C, each step says what it came to."""

        def operate(step: Step, manager: CheckpointManager[Any], _: AgentUser | None) -> None:
            if step.plan is None:  # the journal: opening and closing the directory finishes it
                return
            recovery = step.plan.apply(rollback=self._rollback, discard=self._discard, manager=manager)
            step.action = _ACTIONS.get(recovery.outcome, "left")
            step.detail, step.quarantined = recovery.detail, recovery.quarantined
            _read_back(step)

        done = self._for_each(steps, operate, bar, owner="checkpoint-verify repair")
        self.interrupted = done < len(steps)
        for step in steps[done:]:
            _see_what_it_came_to(step)
        for step in steps:
            if step.action == "finished" and os.path.lexists(step.target.path):
                step.leave("the journal is still there; the agent's next start tries again")

    def drop(self, steps: Sequence[Step], bar: Progress) -> None:
        """Become the owner, which finishes the journal, and then put back what the files held before."""
        held = [_raw(step) for step in steps]

        def drop(step: Step) -> None:
            blob = held[steps.index(step)]
            put_back(store, step, blob) if blob else take_away(store, step)
            step.action = "dropped"

        try:
            with owned_store(self._directory, owner="checkpoint-verify repair") as store:
                done = each_step(steps, drop, bar)
        except Blocked as why:
            self.block(steps, str(why))
            return
        self.interrupted = done < len(steps)
        leave_the_rest(steps[done:])

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

    def _for_each(self, steps: Sequence[Step], work: Work, bar: Progress, **options: Unpack[FileOptions]) -> int:
        try:
            with owned(self._directory, **options) as (manager, user):
                return each_step(steps, lambda step: work(step, manager, user), bar)
        except Blocked as why:
            self.block(steps, str(why))
        return len(steps)

    def block(self, steps: Sequence[Step], why: str) -> None:
        """Record that nothing can be done."""
        self.blocked = why
        for step in steps:
            step.leave(why)


def foresee_drop(step: Step) -> bool:
    """True if the journal has a change of the step's key that is not in its file, and the file can be gone back to."""
    journal = waiting_in(step.target.directory)
    if journal is None or step.target.key not in journal.names:
        step.action, step.detail = "good", "no change of this key waits in a journal"
        return False
    exists = os.path.lexists(step.target.path)
    is_removed = step.found.errno == errno.ENOENT
    if not step.found.waits and not (is_removed and exists):
        step.action, step.detail = "good", "its file has the newest change already; --drop cannot take that back"
        return False
    try:
        header = open_any(_raw(step))[0] if exists else None
    except (Damaged, TooNew) as damage:
        step.leave(f"its file cannot be gone back to: {damage}; `remove` drops the whole checkpoint")
        return False
    what = "a removal" if is_removed else f"generation {step.found.header.generation if step.found.header else '?'}"
    back = f"generation {header.generation} comes back" if header else "the checkpoint will be gone"
    step.action, step.detail = "dropped", f"{what} waits in the journal; without it {back}"
    return True


def _raw(step: Step) -> bytes:
    """What the file itself holds, whatever the journal says; b"" if there is no file."""
    return b"".join(disk.pieces(step.target.path)) if os.path.lexists(step.target.path) else b""


def _see_what_it_came_to(step: Step) -> None:
    """The file of a step that was interrupted, or never begun, shows whether it was replaced."""
    if step.plan is None:
        return
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
