"""repair: repair damaged checkpoints; by default only where the checksum proves the result. Damaged bytes are kept."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial

from checkpointmanager import Outcome, Reason
from checkpointmanager.format import LOCK, SUFFIX

from .. import targets
from ..etcd import SCHEME
from ..exitcodes import UsageError
from ..findings import disk
from ..findings.damage import looks_ours
from ..findings.examine import Circumstances, examine_path
from ..findings.finding import State
from ..findings.scan import Surroundings, scan
from ..remedies.repair import apply_plans, drop_changes, foresee_drop, plan_repairs
from ..remedies.steps import Blocked, Step, finish
from ..screens import phrases
from ..screens.screen import Progress, progress
from ..targets import Target
from .change import MANY_CHANGES, Change, add_consent

HELP = "repair damaged checkpoints, finish a journal (needs the lock)"
EXAMPLES = """\
  checkpoint-verify repair --dry-run --all /var/lib/agent/claims      what can be done?
  checkpoint-verify repair /var/lib/agent/claims/pod-7.json           exactly; nothing is lost
  checkpoint-verify repair --rollback -d /var/lib/agent/claims pod-7  to the previous generation
  checkpoint-verify repair --drop -d /var/lib/agent/claims pod-7      without its change in the journal
  checkpoint-verify repair --all --rollback --discard --yes /var/lib/agent/claims
"""


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
            foresee_drop(step)
        return _Repair("repair", directory, steps, arguments).carry_out(partial(drop_changes, directory))
    consent = {"rollback": arguments.rollback, "discard": arguments.discard}
    damaged = [step for step in steps if not step.action and _can_be_worked_on(step)]
    if damaged:
        try:
            with progress("planning", MANY_CHANGES) as bar:
                plan_repairs(directory, damaged, bar, **consent)
        except Blocked as why:
            return _Repair("repair", directory, steps, arguments).block(why)

    def make(changes: Sequence[Step], bar: Progress) -> int:
        done = apply_plans(directory, changes, bar, **consent)
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
        around = Surroundings(directory)
        found = list(scan(directory, around, Circumstances()))
        damaged = [f for f in found if f.state in (State.DAMAGED, State.UNREADABLE)]
        steps = [finish(around.journal)] if around.journal else []
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


def _can_be_worked_on(step: Step) -> bool:
    found = step.found
    if found.state is State.GOOD:
        step.action, step.detail = "good", "nothing to repair"
    elif found.state is State.TOO_NEW:
        step.action, step.detail = "good", "nothing to repair; a newer program wrote it and can read it"
    elif found.state is State.UNKNOWN:
        step.action, step.detail = "left", "not verified, but not known to be damaged"
    elif found.kubelet:
        whose = "kubelet's" if found.kubelet.of_kubelet else "a driver's"
        step.action, step.detail = (
            "left",
            f"{whose} own file, for which no repair can be proved; run checkpoint-verify diagnose on it",
        )
    elif found.state is State.UNREADABLE:
        step.action, step.detail, step.failed = "left", found.detail, True
    elif found.reason == Reason.NOT_A_FILE:
        step.action = "left"
        step.detail = f"{found.detail}; move it away first: {phrases.move_away(found.path)}"
    elif not _is_ours(step.target):
        step.action, step.detail = (
            "left",
            "nothing shows that it was a checkpoint; other programs' files are not repaired",
        )
    elif not step.target.key or os.path.basename(step.target.path) != step.target.key + SUFFIX:
        step.action, step.detail = "left", "not the file of a key; only <key>.json is repaired"
    else:
        return True
    return False


def _is_ours(target: Target) -> bool:
    """True for a file in a directory that an agent has opened, and for one that still looks like a checkpoint."""
    if target.directory.startswith(SCHEME) or os.path.lexists(os.path.join(target.directory, LOCK)):
        return True
    try:
        return looks_ours(disk.look(target.path, None).head)
    except (OSError, disk.NotAFile):
        return False


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
