"""repair: repair damaged checkpoints; by default only where the checksum proves the result. Damaged bytes are kept."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Sequence

from checkpointmanager import ANY_KIND, CheckpointManager, Outcome, Reason, RecoveryPlan, Store
from checkpointmanager.format import JOURNAL, LOCK, SUFFIX, Damaged, TooNew, open_any

from .. import targets
from ..etcd import SCHEME
from ..exitcodes import UsageError
from ..findings import disk
from ..findings.agent import AgentUser
from ..findings.damage import looks_ours
from ..findings.examine import examine_path
from ..findings.finding import Finding, State
from ..findings.journal import Waiting, waiting_in
from ..findings.scan import Scan
from ..screens import phrases
from ..screens.screen import progress
from ..targets import Target
from .change import MANY_CHANGES, Change, add_consent
from .restore import put_back, take_away
from .steps import Blocked, Count, Step, each_step, owned_store, read_back

HELP = "repair damaged checkpoints, finish a journal (needs the lock)"
EXAMPLES = """\
  checkpoint-verify repair --dry-run --all /var/lib/agent/claims      what can be done?
  checkpoint-verify repair /var/lib/agent/claims/pod-7.json           exactly; nothing is lost
  checkpoint-verify repair --rollback -d /var/lib/agent/claims pod-7  to the previous generation
  checkpoint-verify repair --drop -d /var/lib/agent/claims pod-7      without its change in the journal
  checkpoint-verify repair --all --rollback --discard --yes /var/lib/agent/claims
"""

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets", nargs="*", metavar="KEY|FILE|DIR", help="keys (see -d), files, or with --all a directory"
    )
    targets.add_directory(parser)
    parser.add_argument(
        "--all", action="store_true", help="every damaged checkpoint in the directory, and a journal that waits there"
    )
    parser.add_argument(
        "--rollback", action="store_true", help="where no exact repair exists, go back to the previous generation"
    )
    parser.add_argument(
        "--discard", action="store_true", help="remove what cannot be repaired; its bytes go to quarantine"
    )
    parser.add_argument(
        "--drop", action="store_true", help="go back to what the files hold: drop the changes in the journal"
    )
    parser.add_argument("--dry-run", "-n", action="store_true", help="show the plan, take no lock, change nothing")
    add_consent(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.drop and (arguments.all or arguments.rollback or arguments.discard):
        raise UsageError("--drop takes KEYs or FILEs, and no other remedy")
    directory, steps = _steps(arguments)
    if arguments.drop:
        for step in steps:
            _foresee_drop(step)
        change = _Repair("repair", directory, steps, arguments)
        held = {step.target.path: _raw(step) for step in change.changes}  # before an owner finishes the journal

        def drop(store: Store, step: Step) -> None:
            blob = held[step.target.path]
            put_back(store, step, blob) if blob else take_away(store, step)

        return change.carry_out(change.on_store(drop))
    consent = {"rollback": arguments.rollback, "discard": arguments.discard}
    damaged = [step for step in steps if not step.action and _needs_a_plan(step)]
    if damaged:
        try:
            with progress("planning", MANY_CHANGES) as count:
                _plan(directory, damaged, count, **consent)
        except Blocked as why:
            return _Repair("repair", directory, steps, arguments).block(why)

    def make(changes: Sequence[Step], count: Count) -> int:
        done = apply_plans(directory, changes, count, **consent)
        for step in changes:
            if step.action == "finished" and os.path.lexists(step.target.path):
                step.leave("the journal is still there; the agent's next start tries again")
        return done

    return _Repair("repair", directory, steps, arguments).carry_out(make)


def _steps(arguments: argparse.Namespace) -> tuple[str, list[Step]]:
    given, named = targets.resolve(arguments.targets, arguments.directory)
    for target in given if arguments.all else ():
        os.close(disk.open_folder(target.path))  # not a directory although it should be: let the system say why
    if arguments.all == bool(given):
        raise UsageError("give the KEYs or FILEs to repair, or a directory with --all")
    if arguments.all:
        directory = named or "."
        scan = Scan(directory)
        found = list(scan.findings())
        damaged = [f for f in found if f.state in (State.DAMAGED, State.UNREADABLE)]
        steps = [_finish(scan.journal)] if scan.journal else []
        steps += [Step(Target(f.path, "" if f.kubelet else f.key), f) for f in damaged]
    else:
        directory = given[0].directory
        if any(target.directory != directory for target in given):
            raise UsageError("all files must be in one directory: a repair locks one directory at a time")
        steps = [Step(target, examine_path(target.path)) for target in given]
    if os.path.islink(directory.rstrip("/")):
        raise UsageError(
            f"{phrases.shown(directory)} is a link; give the real path, {phrases.shown(os.path.realpath(directory))}"
        )
    return directory, steps


def _finish(journal: Waiting) -> Step:
    """The step that an owner makes when it opens and closes the directory."""
    path = os.path.join(journal.directory, JOURNAL)
    return Step(Target(path, ""), Finding(path, State.GOOD), action="finished", detail=str(journal))


def _needs_a_plan(step: Step) -> bool:
    """True for a damaged checkpoint of ours; for anything else the step is decided here."""
    found = step.found
    if found.state is State.GOOD:
        step.decide("good", "nothing to repair")
    elif found.state is State.TOO_NEW:
        step.decide("good", "nothing to repair; a newer program wrote it and can read it")
    elif found.state is State.UNKNOWN:
        step.decide("left", "not verified, but not known to be damaged")
    elif found.kubelet:
        whose = "kubelet's" if found.kubelet.of_kubelet else "a driver's"
        why = f"{whose} own file, for which no repair can be proved; run checkpoint-verify diagnose on it"
        step.decide("left", why)
    elif found.state is State.UNREADABLE:
        step.leave(found.detail)
    elif found.reason == Reason.NOT_A_FILE:
        step.decide("left", f"{found.detail}; move it away first: {phrases.move_away(found.path)}")
    elif not _is_ours(step.target):
        step.decide("left", "nothing shows that it was a checkpoint; other programs' files are not repaired")
    elif not step.target.key or os.path.basename(step.target.path) != step.target.key + SUFFIX:
        step.decide("left", "not the file of a key; only <key>.json is repaired")
    else:
        return True
    return False


def _is_ours(target: Target) -> bool:
    """True for a file in a directory that an agent has opened, and for one that still looks like a checkpoint."""
    if target.directory.startswith(SCHEME) or os.path.lexists(os.path.join(target.directory, LOCK)):
        return True
    return looks_ours(disk.blob_of(target.path))


def _plan(directory: str, steps: Sequence[Step], count: Count, *, rollback: bool, discard: bool) -> None:
    """Plan what to do about each file; takes no lock and changes nothing. Raises Blocked."""
    with owned_store(directory, read_only=True) as (store, user):
        manager = CheckpointManager(store, ANY_KIND)

        def plan(step: Step) -> None:
            step.plan = manager.plan_recovery(step.target.real_key)
            if user and step.plan.reason is Reason.UNREADABLE:
                step.leave(_cannot_read(step, step.plan, user))
            else:
                _foresee(step, step.plan, rollback=rollback, discard=discard)

        if each_step(steps, plan, count) < len(steps):
            raise KeyboardInterrupt


def apply_plans(directory: str, steps: Sequence[Step], count: Count, *, rollback: bool, discard: bool) -> int:
    """Become the owner of the directory, and apply the plans. Returns how many before Ctrl-C. Raises Blocked."""
    with owned_store(directory, OWNER) as (store, _):
        manager = CheckpointManager(store, ANY_KIND)

        def apply(step: Step) -> None:
            if step.plan is None:  # the journal: opening and closing the directory finishes it
                return
            recovery = step.plan.apply(rollback=rollback, discard=discard, manager=manager)
            step.action = _ACTIONS.get(recovery.outcome, "left")
            step.detail, step.quarantined = recovery.detail, recovery.quarantined
            if step.action in ("repaired", "rolled-back"):
                read_back(step)

        return each_step(steps, apply, count)


def _foresee_drop(step: Step) -> None:
    """Plan to drop the change of a key that is in the journal and not yet in its file."""
    journal = waiting_in(step.target.directory)
    if journal is None or step.target.key not in journal.names:
        step.decide("good", "no change of this key waits in a journal")
        return
    exists = os.path.lexists(step.target.path)
    is_removed = step.found.errno == errno.ENOENT
    if not step.found.waits and not (is_removed and exists):
        step.decide("good", "its file has the newest change already; --drop cannot take that back")
        return
    try:
        header = open_any(_raw(step))[0] if exists else None
    except (Damaged, TooNew) as damage:
        step.leave(f"its file cannot be used: {damage}; `remove` drops the whole checkpoint")
        return
    what = "a removal" if is_removed else f"generation {step.found.header.generation if step.found.header else '?'}"
    back = f"generation {header.generation} comes back" if header else "the checkpoint will be gone"
    step.decide("dropped", f"{what} waits in the journal; without it {back}")


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
    return disk.look(step.target.path).blob if os.path.lexists(step.target.path) else b""


def _cannot_read(step: Step, plan: RecoveryPlan, user: AgentUser) -> str:
    give = f"chown {user.uid}:{user.gid} {phrases.quoted(step.target.path)}"
    return f"{user}, who owns the directory, cannot read the file: {plan.damage}. If it belongs to the agent: {give}"


class _Repair(Change):
    def next_command(self) -> str:
        """The same command for real, or again; or the one that deals with what is left; "" if there is none."""
        options = [f"--{name}" for name in ("rollback", "discard", "drop") if getattr(self.arguments, name)]
        if not self.is_interrupted and not (self.is_plan and self.changes):
            outcomes = {step.plan.outcome for step in self.steps if step.is_open and step.plan and not step.failed}
            more = {"--rollback": Outcome.NEEDS_ROLLBACK, "--discard": Outcome.HOPELESS}
            options = [option for option, outcome in more.items() if outcome in outcomes]
            if not options:
                return ""
            options.insert(0, "--dry-run")
        if self.arguments.all:
            return phrases.command(" ".join(["repair", "--all", *options]), self.directory)
        *others, last = [step.target.path for step in self.steps]
        return phrases.command(" ".join(["repair", *options, *map(phrases.quoted, others)]), last)
