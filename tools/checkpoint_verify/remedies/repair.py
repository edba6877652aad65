"""Repairs with the library's own recovery: first makes plans, which change nothing, then applies the same plans.

The tool knows no schemas, so it accepts every kind of data.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from checkpointmanager import Outcome, Reason, RecoveryPlan
from checkpointmanager.format import Damaged, TooNew, open_any

from ..findings import disk
from ..findings.agent import AgentUser
from ..findings.journal import waiting_in
from ..screens import phrases
from ..screens.screen import Progress
from .restore import put_back, take_away
from .steps import Step, each_step, owned, owned_store, read_back

OWNER = "checkpoint-verify repair"
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


def plan_repairs(directory: str, steps: Sequence[Step], bar: Progress, *, rollback: bool, discard: bool) -> None:
    """Plan what to do about each file; takes no lock and changes nothing. Raises Blocked."""
    with owned(directory, read_only=True) as (manager, user):

        def plan(step: Step) -> None:
            step.plan = manager.plan_recovery(step.target.real_key)
            if user and step.plan.reason is Reason.UNREADABLE:
                step.leave(_cannot_read(step, step.plan, user))
            else:
                _foresee(step, step.plan, rollback=rollback, discard=discard)

        if each_step(steps, plan, bar) < len(steps):
            raise KeyboardInterrupt


def apply_plans(directory: str, steps: Sequence[Step], bar: Progress, *, rollback: bool, discard: bool) -> int:
    """Become the owner of the directory, and apply the plans. Returns how many before Ctrl-C. Raises Blocked."""
    with owned(directory, owner=OWNER) as (manager, _):

        def apply(step: Step) -> None:
            if step.plan is None:  # the journal: opening and closing the directory finishes it
                return
            recovery = step.plan.apply(rollback=rollback, discard=discard, manager=manager)
            step.action = _ACTIONS.get(recovery.outcome, "left")
            step.detail, step.quarantined = recovery.detail, recovery.quarantined
            if step.action in ("repaired", "rolled-back"):
                read_back(step)

        return each_step(steps, apply, bar)


def drop_changes(directory: str, steps: Sequence[Step], bar: Progress) -> int:
    """Become the owner, which finishes the journal, and then put back what the files held before. Raises Blocked."""
    held = [_raw(step) for step in steps]
    with owned_store(directory, OWNER) as store:

        def drop(step: Step) -> None:
            blob = held[steps.index(step)]
            put_back(store, step, blob) if blob else take_away(store, step)

        return each_step(steps, drop, bar)


def foresee_drop(step: Step) -> None:
    """Plan to drop the change of a key that is in the journal and not yet in its file."""
    journal = waiting_in(step.target.directory)
    if journal is None or step.target.key not in journal.names:
        step.action, step.detail = "good", "no change of this key waits in a journal"
        return
    exists = os.path.lexists(step.target.path)
    is_removed = step.found.errno == errno.ENOENT
    if not step.found.waits and not (is_removed and exists):
        step.action, step.detail = "good", "its file has the newest change already; --drop cannot take that back"
        return
    try:
        header = open_any(_raw(step))[0] if exists else None
    except (Damaged, TooNew) as damage:
        step.leave(f"its file cannot be used: {damage}; `remove` drops the whole checkpoint")
        return
    what = "a removal" if is_removed else f"generation {step.found.header.generation if step.found.header else '?'}"
    back = f"generation {header.generation} comes back" if header else "the checkpoint will be gone"
    step.action, step.detail = "dropped", f"{what} waits in the journal; without it {back}"


def _foresee(step: Step, plan: RecoveryPlan, *, rollback: bool, discard: bool) -> None:
    step.detail = plan.detail.replace("with rollback ", "with --rollback ")
    if plan.outcome is Outcome.NEEDS_ROLLBACK:
        step.action = "rolled-back" if rollback else "left"
    elif plan.outcome is Outcome.HOPELESS:
        step.action = "discarded" if discard else "left"
        removal = "it will be removed" if discard else "--discard removes it"
        step.detail += f"; {removal}, and the agent starts this key from scratch"
    else:
        step.action = _ACTIONS[plan.outcome]
        for done, will in _FUTURE.items():
            step.detail = step.detail.replace(done, will)


def _raw(step: Step) -> bytes:
    """What the file itself holds, apart from the journal; b"" if there is no file."""
    return b"".join(disk.pieces(step.target.path)) if os.path.lexists(step.target.path) else b""


def _cannot_read(step: Step, plan: RecoveryPlan, user: AgentUser) -> str:
    give = f"chown {user.uid}:{user.gid} {phrases.quoted(step.target.path)}"
    return f"{user}, who owns the directory, cannot read the file: {plan.damage}. If it belongs to the agent: {give}"
