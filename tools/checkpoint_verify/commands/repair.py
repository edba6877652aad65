"""repair: repair damaged checkpoints; by default only where the checksum proves the result. Damaged bytes are kept."""

from __future__ import annotations

import argparse
import os

from checkpointmanager import Outcome, Reason
from checkpointmanager.format import LOCK, SUFFIX

from .. import exitcodes, targets
from ..etcd import SCHEME
from ..findings import disk
from ..findings.damage import looks_ours
from ..findings.examine import Circumstances, examine_path
from ..findings.finding import State
from ..findings.lock import Held, lock_of
from ..findings.scan import Surroundings, scan
from ..remedies.owner import Blocked, refuse_if_held
from ..remedies.quarantine import refuse_if_too_many
from ..remedies.repair import Repairer, foresee_drop
from ..remedies.step import Step, finish
from ..screens import phrases
from ..screens.screen import (
    BAD,
    ODD,
    Answer,
    Screen,
    ask,
    check_that_a_user_can_answer,
    progress,
    screen,
)
from ..screens.steps import code_of, print_steps, print_steps_document, verdict_of_steps
from ..targets import Target, UsageError

HELP = "repair damaged checkpoints, finish a journal (needs the lock)"
EXAMPLES = """\
  checkpoint-verify repair --dry-run --all /var/lib/agent/claims      what can be done?
  checkpoint-verify repair /var/lib/agent/claims/pod-7.json           exactly; nothing is lost
  checkpoint-verify repair --rollback -d /var/lib/agent/claims pod-7  to the previous generation
  checkpoint-verify repair --drop -d /var/lib/agent/claims pod-7      without its change in the journal
  checkpoint-verify repair --all --rollback --discard --yes /var/lib/agent/claims
"""
MANY_REPAIRS = 50  # with fewer, a progress bar would vanish before it could be read


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
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    if arguments.drop and (arguments.all or arguments.rollback or arguments.discard):
        raise UsageError("--drop takes KEYs or FILEs, and no other remedy")
    directory, steps = _steps(arguments)
    shown = screen(quiet=arguments.json)
    repairer = Repairer(directory, rollback=arguments.rollback, discard=arguments.discard)
    if arguments.drop:
        chosen = [step for step in steps if foresee_drop(step)]
    else:
        chosen = [step for step in steps if step.action == "finished" or _can_be_worked_on(step)]
        damaged = [step for step in chosen if not step.action]
        if damaged:
            with progress("planning", MANY_REPAIRS) as bar:
                repairer.plan(damaged, bar)
    changes = [step for step in chosen if step.is_change]
    if arguments.dry_run or not changes:
        return _report(repairer, steps, arguments, shown, planned=True)
    try:
        refuse_if_held(directory)
        refuse_if_too_many(directory, changes)
        answer = _answer(chosen, arguments, shown)
    except Blocked as why:
        repairer.block(chosen, str(why))
        return _report(repairer, steps, arguments, shown, planned=False)
    if answer is Answer.INTERRUPTED:
        return exitcodes.COULD_NOT_LOOK
    if answer is Answer.NO:
        return code_of(steps, planned=True)
    with progress("repairing", MANY_REPAIRS) as bar:
        (repairer.drop if arguments.drop else repairer.operate)(changes, bar)
    return _report(repairer, steps, arguments, shown, planned=False)


def _steps(arguments: argparse.Namespace) -> tuple[str, list[Step]]:
    given, named = targets.resolve(arguments.targets, arguments.directory)
    for target in given if arguments.all else ():
        os.close(disk.open_folder(target.path))  # not a directory although it should be: let the system say why
    if arguments.all == bool(given):
        raise UsageError("give the KEYs or FILEs to repair, or a directory with --all")
    if arguments.all:
        directory = named or "."
        around = Surroundings(directory)
        found = list(scan(directory, around, Circumstances(), with_previous=False))
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


def _answer(steps: list[Step], arguments: argparse.Namespace, screen: Screen) -> Answer:
    if arguments.yes:
        return Answer.YES
    check_that_a_user_can_answer("--yes, or --dry-run to see the plan", json=arguments.json)
    print_steps(steps, screen, planned=True)
    number = sum(step.is_change for step in steps)
    return ask(f"Change {phrases.count(number, 'file')}? What is replaced goes to quarantine first.")


def _report(
    repairer: Repairer, steps: list[Step], arguments: argparse.Namespace, screen: Screen, *, planned: bool
) -> int:
    if arguments.json:
        return print_steps_document(
            "repair", steps, planned=planned, blocked=repairer.blocked, interrupted=repairer.interrupted
        )
    code = code_of(steps, planned=planned)
    if repairer.blocked:
        screen.say(("NOTHING DONE", BAD), f": {phrases.shown(repairer.blocked)}")
        return code
    verdict, style = verdict_of_steps(steps, planned=planned, interrupted=repairer.interrupted)
    screen.say((verdict, style))
    print_steps(steps, screen, planned=planned)
    if planned and any(step.is_change for step in steps):
        _print_lock(steps[0].target.directory, screen)
    if command := _next(steps, arguments, planned=planned, interrupted=repairer.interrupted):
        screen.verbatim(f"next  {command}")
    return code


def _next(steps: list[Step], arguments: argparse.Namespace, *, planned: bool, interrupted: bool) -> str:
    """The same command for real, or again; or the one that deals with what is left; "" if there is none."""
    options = [f"--{name}" for name in ("rollback", "discard", "drop") if getattr(arguments, name)]
    if not interrupted and not (planned and any(step.is_change for step in steps)):
        outcomes = {step.plan.outcome for step in steps if step.is_open and step.plan and not step.failed}
        more = [
            option
            for option, outcome in (("--rollback", Outcome.NEEDS_ROLLBACK), ("--discard", Outcome.HOPELESS))
            if outcome in outcomes
        ]
        if not more:
            return ""
        options = ["--dry-run", *more]
    if arguments.all:
        return phrases.command(" ".join(["repair", "--all", *options]), steps[0].target.directory)
    *others, last = [step.target.path for step in steps]
    return phrases.command(" ".join(["repair", *options, *map(phrases.quoted, others)]), last)


def _print_lock(directory: str, screen: Screen) -> None:
    lock = lock_of(directory)
    if lock.held in (Held.HELD, Held.UNKNOWN):
        screen.say((f"Stop the agent first: the lock is {lock}", ODD))
