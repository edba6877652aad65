"""What repair, restore, remove and quarantine purge have in common: ask, take the lock, make each step, report.

The report says what will be done about each file, or was done, and what is still damaged after it.
"""

from __future__ import annotations

import argparse
import errno
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from checkpointmanager import Store
from checkpointmanager.format import KEPT, KEPT_BYTES, QUARANTINE

from .. import exitcodes
from ..etcd import SCHEME
from ..findings.agent import lock_of
from ..findings.finding import State
from ..findings.problem import MANY
from ..findings.quarantine import copies_in, is_needed
from ..screens import phrases
from ..screens.documents import path_members, print_document
from ..screens.screen import (
    BAD,
    FAINT,
    FINE,
    ODD,
    Answer,
    Screen,
    ask,
    check_that_a_user_can_answer,
    progress,
    screen,
)
from .steps import Blocked, Count, Step, after_interrupt, each_step, owned_store, refuse_if_held

MANY_CHANGES = 50  # are made before the screen counts them
_FULL = (errno.ENOSPC, errno.EDQUOT)

Make = Callable[[Sequence[Step], Count], int]  # makes the steps, and returns how many before Ctrl-C


def add_consent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


class Change:
    """One run of a command that changes files: all of its steps, and how it ended."""

    def __init__(self, command: str, directory: str, steps: list[Step], arguments: argparse.Namespace) -> None:
        self.command = command
        self.directory = directory
        self.steps = steps
        self.arguments = arguments
        self.changes = [step for step in steps if step.is_change]
        self.is_plan = not self.changes or getattr(arguments, "dry_run", False)
        self.blocked = ""
        self.is_interrupted = False

    def carry_out(self, make: Make, *, keeps: bool = True) -> int:
        """Ask, make the steps and report. Returns the exit code. `keeps`: what is replaced goes to quarantine."""
        if self.is_plan:
            return self.report()
        try:
            refuse_if_held(self.directory)
            if keeps:
                _refuse_if_too_many(self.directory, self.changes)
            answer = self._answer(keeps=keeps)
            if answer is not Answer.YES:
                return self._refused(answer)
            with progress(self.command, MANY_CHANGES) as count:
                done = make(self.changes, count)
        except Blocked as why:
            return self.block(why)
        self.is_interrupted = done < len(self.changes)
        after_interrupt(self.changes[done:])
        return self.report()

    def on_store(self, work: Callable[[Store, Step], None]) -> Make:
        """Makes the steps on the store itself, with its lock."""

        def make(changes: Sequence[Step], count: Count) -> int:
            with owned_store(self.directory, f"checkpoint-verify {self.command}") as (store, _):
                return each_step(changes, lambda step: work(store, step), count)

        return make

    def block(self, why: Blocked) -> int:
        """Report that nothing could be done."""
        self.blocked = str(why)
        for step in self.steps:
            if step.is_change or not step.action:
                step.leave(self.blocked)
        return self.report()

    def report(self) -> int:
        code = self._code()
        if self.arguments.json:
            members = {
                "dry_run": self.is_plan,
                "blocked": phrases.shown(self.blocked),
                "interrupted": self.is_interrupted,
                "steps": [_document(step) for step in self.steps],
            }
            print_document(self.command, code, members)
            return code
        shown = screen()
        if self.blocked:
            shown.say(("NOTHING DONE", BAD), f": {phrases.shown(self.blocked)}")
            return code
        shown.say(self._verdict())
        _print_steps(self.steps, shown, planned=self.is_plan)
        lock = lock_of(self.directory)
        if self.is_plan and self.changes and lock.may_be_held:
            shown.say((f"Stop the agent first: the lock is {lock}", ODD))
        if command := self.next_command():
            shown.line(f"next  {command}")
        return code

    def next_command(self) -> str:
        """The command that comes next; "" if there is none."""
        return ""

    def _code(self) -> int:
        """A plan to change something is damage: there is still something to do."""
        return exitcodes.of(
            damaged=any(step.is_damaged or (self.is_plan and step.is_change) for step in self.steps),
            unseen=bool(self.blocked) or any(step.failed for step in self.steps),
        )

    def _answer(self, *, keeps: bool) -> Answer:
        if self.arguments.yes:
            return Answer.YES
        number = phrases.count(len(self.changes), "file")
        question = f"Change {number}? What is replaced goes to quarantine first."
        if not keeps:
            question = f"Delete {number} for good?"
        instead = "--yes, or --dry-run to see the plan" if "dry_run" in self.arguments else "--yes"
        check_that_a_user_can_answer(instead, json=self.arguments.json)
        _print_steps(self.steps, screen(), planned=True)
        return ask(question)

    def _refused(self, answer: Answer) -> int:
        damaged = answer is Answer.NO and any(step.found.state is State.DAMAGED for step in self.steps)
        return exitcodes.of(damaged=damaged, unseen=True)

    def _verdict(self) -> tuple[str, str]:
        """The first line: what was done or will be, and what is still damaged after it."""
        changes = Counter(step.action.replace("-", " ") for step in self.steps if step.is_change)
        damaged = sum(step.is_damaged for step in self.steps)
        left = sum(step.is_open for step in self.steps) - damaged
        if not changes and not damaged and not left:
            return "GOOD: nothing to do", FINE
        will = "will be " if self.is_plan else ""
        parts = [f"{number:,} {will}{action}" for action, number in sorted(changes.items())]
        parts += [f"{damaged:,} {'will still be' if self.is_plan and changes else 'still'} DAMAGED"] if damaged else []
        parts += [f"{left:,} left as {'it is' if left == 1 else 'they are'}"] if left else []
        said = ", ".join(parts)
        if any(step.errno in _FULL for step in self.steps):
            said += "; the disk is full"
        if self.is_plan:
            return f"PLAN: {said}; nothing was changed", ODD
        style = BAD if damaged or left or self.is_interrupted else FINE
        return f"{'INTERRUPTED' if self.is_interrupted else 'DONE'}: {said}", style


def _refuse_if_too_many(directory: str, steps: Sequence[Step]) -> None:
    """Raises Blocked if the copies that the steps will make, and those that are needed, exceed what is kept."""
    if directory.startswith(SCHEME):  # etcd keeps a number of copies for each key
        return
    sizes = [step.found.size for step in steps]
    try:
        kept = copies_in(directory)
    except OSError:
        return  # the first copy fails, which says why
    if _fit([*sizes, *(copy.size for copy in kept)]):
        return
    kept = [copy for copy in kept if is_needed(copy, kept)]
    if not _fit([*sizes, *(copy.size for copy in kept)]):
        raise Blocked(
            f"{phrases.count(len(steps), 'copy', 'copies')} would go to quarantine, which has {len(kept):,} that are "
            f"needed and keeps at most {KEPT:,} of {phrases.size(KEPT_BYTES)}; nothing was touched. Keep everything "
            f"with `bundle` first, then delete copies with `quarantine purge`, or give fewer KEYs"
        )


def _fit(sizes: Sequence[int]) -> bool:
    return len(sizes) <= KEPT and sum(sizes) <= KEPT_BYTES


def _print_steps(steps: Sequence[Step], screen: Screen, *, planned: bool) -> None:
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
            if not planned and step.quarantined:
                copy = phrases.shown(phrases.base_name(step.quarantined))
                screen.say((f"the former bytes are kept in {QUARANTINE}/{copy}", FAINT), indent=2)


def _print_many(same: list[Step], screen: Screen, *, planned: bool) -> None:
    first = same[0]
    where = f"{phrases.count(len(same), 'file')} in {phrases.shown(first.target.directory)}"
    some = ", ".join(phrases.shown(step.target.key or phrases.base_name(step.target.path)) for step in same[:3])
    reason = f"{first.found.reason}, " if first.found.reason else ""
    screen.say(_word(first, planned=planned), f": {where}: {reason}such as {some}")
    screen.say((f"the first: {phrases.shown(first.detail)}", FAINT), indent=2)
    if not planned and first.quarantined:
        screen.say((f"the former bytes are kept in {QUARANTINE}", FAINT), indent=2)


def _word(step: Step, *, planned: bool) -> tuple[str, str]:
    if step.action in ("good", "stays"):
        return step.action.replace("good", "good already"), FAINT
    if step.is_open:
        return ("will still be damaged" if planned else "still damaged") if step.is_damaged else "left as it is", BAD
    word = step.action.replace("-", " ")
    return f"will be {word}" if planned else word, FINE


def _document(step: Step) -> dict[str, Any]:
    return path_members(step.target.path) | {
        "key": step.target.key,
        "state": step.found.state,
        "reason": step.found.reason,
        "action": step.action,
        "detail": phrases.shown(step.detail),
        "quarantined": phrases.shown(step.quarantined),
    }
