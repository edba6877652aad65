"""repair: repair damaged checkpoints; by default only where the checksum proves the result. Damaged bytes are kept."""

from __future__ import annotations

import argparse
import errno
import os
from collections import Counter
from typing import Any

from checkpointmanager import Outcome, Reason
from checkpointmanager._format.names import LOCK, SUFFIX

from .. import exitcodes, targets
from ..etcd import SCHEME
from ..findings import disk
from ..findings.damage import looks_ours
from ..findings.examine import Circumstances, examine_path
from ..findings.finding import State
from ..findings.lock import Held, lock_of
from ..findings.problem import MANY
from ..findings.scan import Surroundings, scan
from ..remedies.owner import Blocked, refuse_if_held
from ..remedies.repair import Repairer, Step
from ..screens import phrases
from ..screens.documents import path_members, print_document
from ..screens.screen import (
    BAD,
    FAINT,
    FINE,
    ODD,
    STRONG,
    Answer,
    Screen,
    ask,
    check_that_a_user_can_answer,
    progress,
    screen,
)
from ..targets import Target, UsageError

HELP = "repair damaged checkpoints (needs the lock)"
EXAMPLES = """\
  checkpoint-verify repair --dry-run --all /var/lib/agent/claims      what can be done?
  checkpoint-verify repair /var/lib/agent/claims/pod-7.json           exactly; nothing is lost
  checkpoint-verify repair --rollback -d /var/lib/agent/claims pod-7  to the previous generation
  checkpoint-verify repair --all --rollback --discard --yes /var/lib/agent/claims
"""
MANY_REPAIRS = 50  # with fewer, a progress bar would vanish before it could be read
_FULL = (errno.ENOSPC, errno.EDQUOT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets", nargs="*", metavar="KEY|FILE|DIR", help="keys (see -d), files, or with --all a directory"
    )
    targets.add_directory(parser)
    parser.add_argument("--all", action="store_true", help="every damaged checkpoint in the directory")
    parser.add_argument(
        "--rollback", action="store_true", help="where no exact repair exists, go back to the previous generation"
    )
    parser.add_argument(
        "--discard", action="store_true", help="remove what cannot be repaired; its bytes go to quarantine"
    )
    parser.add_argument("--dry-run", "-n", action="store_true", help="show the plan, take no lock, change nothing")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    directory, steps = _steps(arguments)
    shown = screen(quiet=arguments.json)
    damaged = [step for step in steps if _can_be_worked_on(step)]
    repairer = Repairer(directory, rollback=arguments.rollback, discard=arguments.discard)
    if damaged:
        with progress("planning", MANY_REPAIRS) as bar:
            repairer.plan(damaged, bar)
    changes = [step for step in damaged if step.is_change]
    if arguments.dry_run or not changes:
        return _report(repairer, steps, arguments, shown, planned=True)
    try:
        refuse_if_held(directory)
        answer = _answer(damaged, arguments, shown)
    except Blocked as why:
        repairer.block(damaged, str(why))
        return _report(repairer, steps, arguments, shown, planned=False)
    if answer is Answer.INTERRUPTED:
        return exitcodes.COULD_NOT_LOOK
    if answer is Answer.NO:
        shown.say(("Nothing was changed.", STRONG))
        return _code(steps, planned=True)
    with progress("repairing", MANY_REPAIRS) as bar:
        repairer.operate(changes, bar)
    return _report(repairer, steps, arguments, shown, planned=False)


def _steps(arguments: argparse.Namespace) -> tuple[str, list[Step]]:
    given, named = targets.resolve(arguments.targets, arguments.directory)
    for target in given if arguments.all else ():
        os.close(disk.open_folder(target.path))  # not a directory although it should be: let the system say why
    if arguments.all == bool(given):
        raise UsageError("give the KEYs or FILEs to repair, or a directory with --all")
    if arguments.all:
        directory = named or "."
        found = scan(directory, Surroundings(directory), Circumstances(), with_previous=False)
        damaged = [f for f in found if f.state in (State.DAMAGED, State.UNREADABLE)]
        steps = [Step(Target(f.path, "" if f.kubelet else f.key), f) for f in damaged]
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
    _print_steps(steps, screen, planned=True)
    number = sum(step.is_change for step in steps)
    return ask(f"Change {phrases.count(number, 'file')}? The damaged bytes go to quarantine first.")


def _code(steps: list[Step], *, planned: bool) -> int:
    return exitcodes.of(
        damaged=any(step.is_damaged or (planned and step.is_change) for step in steps),
        unseen=any(step.failed for step in steps),
    )


def _report(
    repairer: Repairer, steps: list[Step], arguments: argparse.Namespace, screen: Screen, *, planned: bool
) -> int:
    code = _code(steps, planned=planned)
    if arguments.json:
        members = {
            "dry_run": planned,
            "blocked": phrases.shown(repairer.blocked),
            "interrupted": repairer.interrupted,
            "steps": [_document(step) for step in steps],
        }
        print_document("repair", code, members)
        return code
    if repairer.blocked:
        screen.say(("NOTHING DONE", BAD), f": {phrases.shown(repairer.blocked)}")
        return code
    verdict, style = _verdict(steps, planned=planned, interrupted=repairer.interrupted)
    screen.say((verdict, style))
    _print_steps(steps, screen, planned=planned)
    if planned and any(step.is_change for step in steps):
        _print_lock(steps[0].target.directory, screen)
    if command := _next(steps, arguments, planned=planned, interrupted=repairer.interrupted):
        screen.verbatim(f"next  {command}")
    return code


def _verdict(steps: list[Step], *, planned: bool, interrupted: bool) -> tuple[str, str]:
    """The first line: what was done or will be, and what is still damaged after it."""
    changes = Counter(step.action.replace("-", " ") for step in steps if step.is_change)
    damaged = sum(step.is_damaged for step in steps)
    left = sum(step.is_open for step in steps) - damaged
    if not changes and not damaged and not left:
        return "GOOD: nothing to repair", FINE
    will = "will be " if planned else ""
    parts = [f"{number:,} {will}{action}" for action, number in sorted(changes.items())]
    parts += [f"{damaged:,} {'will still be' if planned and changes else 'still'} DAMAGED"] if damaged else []
    parts += [f"{left:,} left as {'it is' if left == 1 else 'they are'}"] if left else []
    said = ", ".join(parts)
    if any(step.errno in _FULL for step in steps):
        said += "; the disk is full"
    if planned:
        return f"PLAN: {said}; nothing was changed", ODD
    return f"{'INTERRUPTED' if interrupted else 'DONE'}: {said}", BAD if damaged or left or interrupted else FINE


def _print_steps(steps: list[Step], screen: Screen, *, planned: bool) -> None:
    """Many steps of one sort are one line, as in verify's list; --json has each."""
    sorts: dict[tuple[str, ...], list[Step]] = {}
    for step in steps:
        sorts.setdefault((step.action, step.found.reason, step.plan.outcome if step.plan else ""), []).append(step)
    for same in sorts.values():
        if len(same) >= MANY:
            _print_many(same, screen, planned=planned)
            continue
        for step in same:
            path, detail = phrases.shown(step.target.path), phrases.shown(step.detail)
            screen.say(_word(step, planned=planned), f": {path}: {detail}")
            if not planned and step.quarantined and os.path.lexists(step.quarantined):
                screen.say((f"the damaged bytes are kept in {phrases.shown(step.quarantined)}", FAINT), indent=2)


def _print_many(same: list[Step], screen: Screen, *, planned: bool) -> None:
    first = same[0]
    where = f"{phrases.count(len(same), 'file')} in {phrases.shown(first.target.directory)}"
    some = ", ".join(phrases.shown(step.target.key or phrases.base_name(step.target.path)) for step in same[:3])
    screen.say(_word(first, planned=planned), f": {where}: {first.found.reason}, such as {some}")
    screen.say((f"the first: {phrases.shown(first.detail)}", FAINT), indent=2)
    if not planned and first.quarantined:
        screen.say(
            (f"the damaged bytes are kept in {phrases.shown(os.path.dirname(first.quarantined))}", FAINT), indent=2
        )


def _word(step: Step, *, planned: bool) -> tuple[str, str]:
    if step.action == "good":
        return "good already", FAINT
    if step.is_open:
        return ("will still be damaged" if planned else "still damaged") if step.is_damaged else "left as it is", BAD
    word = step.action.replace("-", " ")
    return f"will be {word}" if planned else word, FINE


def _next(steps: list[Step], arguments: argparse.Namespace, *, planned: bool, interrupted: bool) -> str:
    """The same command for real, or again; or the one that deals with what is left; "" if there is none."""
    options = [f"--{name}" for name in ("rollback", "discard") if getattr(arguments, name)]
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


def _document(step: Step) -> dict[str, Any]:
    return path_members(step.target.path) | {
        "key": step.target.key,
        "state": step.found.state,
        "reason": step.found.reason,
        "action": step.action,
        "detail": phrases.shown(step.detail),
        "quarantined": phrases.shown(step.quarantined),
    }
