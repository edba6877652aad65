"""Prints tallies: the verdict line, one line per problem, and the summary."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import words
from .finding import Finding, State
from .groups import Group, grouped
from .kubelet import NO_CHECKSUM, NVIDIA, Verdict
from .lockstate import Held
from .meaning import NOTHING_FOUND, Severity
from .screen import BAD, FAINT, FINE, ODD, STRONG, Part, Screen
from .tally import Tally

VERDICT_WIDTH = 80

_STYLES = {Severity.DAMAGED: BAD, Severity.UNSEEN: BAD, Severity.UNUSABLE: BAD, Severity.WARNING: ODD}


def verdict_of(tallies: Sequence[Tally], *, strict: bool) -> tuple[str, str]:
    """The first line, at most 80 characters long, and its style."""
    damaged = sum(tally.states[State.DAMAGED] for tally in tallies)
    unseen = sum(tally.count(Severity.UNSEEN) for tally in tallies)
    warned = sum(tally.count(Severity.WARNING) for tally in tallies)
    files = sum(tally.files for tally in tallies)
    if len(tallies) == 1 and not tallies[0].is_directory:
        return _verdict_of_file(tallies[0], strict=strict)
    noun = _noun(tallies)
    also = f", {unseen:,} not checked" if damaged and unseen else ""
    if damaged:
        return _fitted(f"DAMAGED: {damaged:,} of {words.count(files, noun)}{also}", tallies), BAD
    if any(tally.count(Severity.UNUSABLE) for tally in tallies):
        return _fitted(_unusable(tallies, files, noun), tallies), BAD
    if strict and warned:
        return _fitted(f"NOT GOOD: {words.count(warned, 'warning')} (--strict)", tallies), BAD
    if unseen and not files and all(holds_nothing(tally) for tally in tallies):
        return _fitted("NOTHING FOUND: no checkpoints, no kubelet state files", tallies), BAD
    if unseen:
        return _fitted(f"COULD NOT LOOK: {words.count(unseen, 'problem')}", tallies), BAD
    unverified = sum(
        found.state is State.UNKNOWN and found.reason != NO_CHECKSUM for t in tallies for found in t.kubelet
    )
    if unverified:
        return _fitted(f"UNVERIFIED: {unverified:,} of {words.count(files, noun)}", tallies), ODD
    if warned:
        return _fitted(f"GOOD, with {words.count(warned, 'warning')}: {words.count(files, noun)}", tallies), ODD
    bare = sum(tally.states[State.UNKNOWN] for tally in tallies)
    note = f" ({bare:,} without a checksum)" if bare else ""
    return _fitted(f"GOOD: {words.count(files, noun)}{note}", tallies), FINE


def _unusable(tallies: Sequence[Tally], files: int, noun: str) -> str:
    if any(tally.around.refusals for tally in tallies):
        return f"NOT USABLE: {words.count(files, noun)}, but the agent cannot start"
    refused = sum(tally.count(Severity.UNUSABLE) for tally in tallies)
    return f"NOT USABLE: the agent cannot read {refused:,} of {words.count(files, noun)}"


def holds_nothing(tally: Tally) -> bool:
    return any(problem.reason == NOTHING_FOUND for problem in tally.problems)


def _verdict_of_file(tally: Tally, *, strict: bool) -> tuple[str, str]:
    warned = tally.count(Severity.WARNING)
    first = tally.problems[0] if tally.problems else None
    if first and first.severity is not Severity.WARNING:
        word = {Severity.DAMAGED: "DAMAGED", Severity.UNUSABLE: "NOT USABLE"}.get(first.severity, "COULD NOT LOOK")
        style, note = BAD, f": {words.shortened(words.shown(first.reason), 30)}"
    elif warned:
        word = "UNVERIFIED" if tally.states[State.UNKNOWN] else "NOT GOOD (--strict)" if strict else "GOOD"
        style, note = ODD, f", with {words.count(warned, 'warning')}"
    elif tally.states[State.UNKNOWN]:
        word, style, note = "UNVERIFIED", ODD, ": it has no checksum"
    else:
        word, style, note = "GOOD", FINE, ""
    where = words.shortened(words.shown(tally.path), VERDICT_WIDTH - len(word) - len(note) - 2)
    return f"{word}: {where}{note}", style


def print_report(tallies: Sequence[Tally], screen: Screen, *, strict: bool, each: bool = False) -> None:
    """Print the verdict, the problems and the summary; for several places one row each, then the problems.

    With `each`, every problem has its own line, even if many are of one sort.
    """
    verdict, style = verdict_of(tallies, strict=strict)
    screen.say((verdict, style))
    if len(tallies) > 1:
        screen.say()
        _print_places(tallies, screen, strict=strict)
        if not screen.is_terminal:
            screen.say()
    for group in grouped((problem for tally in tallies for problem in tally.problems), each=each):
        if screen.is_terminal:
            _print_block(group, screen)
        else:
            screen.say(one_line(group))
    if len(tallies) == 1 and not _saw_nothing(tallies[0]):
        _print_summary(tallies[0], screen)


def _saw_nothing(tally: Tally) -> bool:
    """True if there is nothing to sum up: nothing was found, or the path could not be read."""
    return not tally.files and not tally.around.previous and tally.around.lock.held is Held.ABSENT


def one_line(group: Group) -> str:
    """Reason, meaning and next step of a problem, or of many of one sort, on one line."""
    problem = group.first
    step = f". Next: {group.next}" if group.next else ""
    holds = f". Holds {problem.subject}" if problem.subject and len(group.problems) == 1 else ""
    return f"{problem.severity}: {group.title}: {problem.reason}: {group.detail}. {problem.meaning}{holds}{step}"


def _print_places(tallies: Sequence[Tally], screen: Screen, *, strict: bool) -> None:
    rows: list[tuple[Part, ...]] = []
    for tally in tallies:
        verdict, style = verdict_of([tally], strict=strict)
        wrong = sum(tally.count(severity) for severity in (Severity.DAMAGED, Severity.UNSEEN, Severity.UNUSABLE))
        lock = tally.around.lock.held.value if tally.is_directory and not tally.around.of_kubelet else "-"
        rows.append(
            (
                words.shown(tally.path),
                (re.split("[:,]", verdict)[0], style),
                f"{tally.files:,}",
                f"{wrong:,}",
                f"{tally.count(Severity.WARNING):,}",
                lock,
            )
        )
    headings = ("place", "verdict", "files", "wrong", "warnings", "lock")
    screen.table(headings, rows, (2, 3, 4), spare=("lock", "warnings", "files", "wrong"))


def verdict_word(verdict: Verdict) -> str:
    return "unverified" if verdict is Verdict.UNKNOWN else verdict.value


def loads_in(found: Finding) -> str:
    """The kubelet versions that load the file, for people."""
    assert found.kubelet
    if found.kubelet.kind == NVIDIA:
        return "not a kubelet file"
    answers = found.kubelet.loads_in
    loading = [version for version, answer in answers.items() if answer]
    if not loading:
        return "not known" if any(answer is None for answer in answers.values()) else "none"
    if len(loading) == 1:
        return loading[0]
    versions = list(answers)
    first, last = versions.index(loading[0]), versions.index(loading[-1])
    return f"{loading[0]} to {loading[-1]}" if last - first + 1 == len(loading) else ", ".join(loading)


def _print_block(group: Group, screen: Screen) -> None:
    """On a terminal the next step has its own line, so it can be copied."""
    problem = group.first
    screen.say()
    severity = problem.severity.replace("-", " ")
    screen.say((severity, _STYLES[problem.severity]), "  ", (group.title, STRONG), (f"  {problem.reason}", FAINT))
    detail = group.detail if len(group.problems) > 1 else group.detail[:1].upper() + group.detail[1:]
    screen.say(f"{problem.meaning}{':' if len(group.problems) > 1 else '.'} {detail}.", indent=2)
    if problem.subject and len(group.problems) == 1:
        screen.say(("holds ", FAINT), str(problem.subject), indent=2)
    if group.next:
        screen.verbatim(f"  → {group.next}")


def _print_summary(tally: Tally, screen: Screen) -> None:
    screen.say()
    screen.say((words.shown(tally.path), STRONG))
    if tally.kubelet:
        _print_kubelet(tally.kubelet, screen)
    around = tally.around
    if tally.is_directory and (tally.files > len(tally.kubelet) or not around.of_kubelet):
        screen.pairs(_summary(tally))
        if tally.states[State.DAMAGED] > sum(found.state is State.DAMAGED for found in tally.kubelet):
            screen.verbatim(f"  next         checkpoint-verify repair --dry-run --all {words.quoted(tally.path)}")
    elif tally.kinds:
        screen.pairs(_summary(tally)[:4])


def _summary(tally: Tally) -> list[tuple[str, str]]:
    states, around = tally.states, tally.around
    this, earlier, unknown = tally.boots_counted()
    sizes = f"{words.size(tally.octets)}, the largest {words.size(tally.largest)}" if tally.files else ""
    boots = [f"{this:,} from this one", f"{earlier:,} from an earlier one", f"{unknown:,} unknown"]
    return [
        ("checkpoints", ", ".join(f"{number:,} {state}" for state, number in states.items() if number) or "none"),
        ("kinds", _kinds(tally)),
        ("generations", _span(tally.lowest_generation, tally.highest_generation)),
        ("boots", ", ".join(b for b in boots if not b.startswith("0 "))),
        ("size", sizes),
        ("previous", f"{around.previous:,} kept for a rollback, {len(around.torn):,} torn" if around.previous else ""),
        ("temp files", f"{len(around.temps):,} left over" if around.temps else "none"),
        ("quarantined", words.count(around.quarantined, "copy", "copies") if around.quarantined else "none"),
        ("other files", f"{around.foreign:,}, not checked" if around.foreign else ""),
        ("lock", str(around.lock) if around.lock.held is not Held.ABSENT else "no lock file"),
    ]


def _kinds(tally: Tally) -> str:
    return ", ".join(
        f"{words.shown(kind)} v{version}: {number:,}" for (kind, version), number in sorted(tally.kinds.items())[:8]
    )


def _span(low: int, high: int) -> str:
    return (f"{low:,} to {high:,}" if low != high else f"{low:,}") if high else ""


def _print_kubelet(findings: list[Finding], screen: Screen) -> None:
    styles = {Verdict.VALID: FINE, Verdict.DAMAGED: BAD, Verdict.UNKNOWN: ODD}
    rows = []
    for found in findings:
        assert found.kubelet
        verdict = found.kubelet.verdict
        checksum = found.kubelet.actual or "-"
        if found.kubelet.expected and found.kubelet.expected != found.kubelet.actual:
            checksum += f" (should be {found.kubelet.expected})"
        name = words.shown(words.base_name(found.path))
        rows.append(
            (name, found.kubelet.format or "-", (verdict_word(verdict), styles[verdict]), checksum, loads_in(found))
        )
    spare = ("loads in kubelet", "form", "checksum")
    screen.table(("file", "form", "verdict", "checksum", "loads in kubelet"), rows, spare=spare)


def _noun(tallies: Sequence[Tally]) -> str:
    of_kubelet = sum(len(tally.kubelet) for tally in tallies)
    if not of_kubelet:
        return "checkpoint"
    if any(found.kubelet and found.kubelet.kind == NVIDIA for tally in tallies for found in tally.kubelet):
        return "state file"
    return "kubelet state file" if of_kubelet == sum(tally.files for tally in tallies) else "state file"


def _fitted(said: str, tallies: Sequence[Tally]) -> str:
    """The verdict with its place, shortened to fit."""
    where = words.shown(tallies[0].path) if len(tallies) == 1 else f"{len(tallies)} places"
    return f"{said} in {words.shortened(where, VERDICT_WIDTH - len(said) - 4)}"
