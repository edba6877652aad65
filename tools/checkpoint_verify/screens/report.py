"""Prints summaries: the verdict line, one line per problem, and the summary."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

from ..etcd import SCHEME
from ..findings.agent import Held
from ..findings.damage import UNRECOGNISED
from ..findings.finding import TOO_NEW, Finding, State
from ..findings.problem import NOTHING_FOUND, Group, Problem, Severity, grouped
from ..findings.summary import Summary
from ..registry import NO_CHECKSUM, Verdict
from . import phrases
from .screen import BAD, FAINT, FINE, ODD, STRONG, Part, Screen

VERDICT_WIDTH = 80

STATE_STYLES = {State.GOOD: FINE, State.DAMAGED: BAD, State.UNREADABLE: BAD, State.TOO_NEW: ODD, State.UNKNOWN: ODD}
_STYLES = {Severity.DAMAGED: BAD, Severity.UNSEEN: BAD, Severity.UNUSABLE: BAD, Severity.WARNING: ODD}


def verdict_of(summaries: Sequence[Summary], *, strict: bool) -> tuple[str, str]:
    """The first line, at most 80 characters long, and its style."""
    damaged = sum(summary.states[State.DAMAGED] for summary in summaries)
    unseen, warned = total(summaries, Severity.UNSEEN), total(summaries, Severity.WARNING)
    files = sum(summary.files for summary in summaries)
    if len(summaries) == 1 and not summaries[0].is_directory:
        return _verdict_of_file(summaries[0], strict=strict)
    noun = _noun(summaries)
    also = f", {unseen:,} not checked" if damaged and unseen else ""
    if damaged:
        foreign = damaged == sum(summary.reasons[UNRECOGNISED] for summary in summaries)
        word = "NOT A CHECKPOINT" if foreign else "DAMAGED"
        return _fitted(f"{word}: {damaged:,} of {phrases.count(files, noun)}{also}", summaries), BAD
    if total(summaries, Severity.UNUSABLE):
        return _fitted(_unusable(summaries, files, noun), summaries), BAD
    if strict and warned:
        return _fitted(f"NOT GOOD: {phrases.count(warned, 'warning')} (--strict)", summaries), BAD
    if unseen and not files and all(holds_nothing(summary) for summary in summaries):
        return _fitted("NOTHING FOUND: no checkpoints, no kubelet state files", summaries), BAD
    if unseen and len(summaries) == 1 and not files:
        return _verdict_of_file(summaries[0], strict=strict)
    if unseen:
        return _fitted(f"COULD NOT LOOK: {phrases.count(unseen, 'problem')}", summaries), BAD
    unverified = sum(
        found.state is State.UNKNOWN and found.reason != NO_CHECKSUM for t in summaries for found in t.kubelet
    )
    if unverified:
        return _fitted(f"UNVERIFIED: {unverified:,} of {phrases.count(files, noun)}", summaries), ODD
    if warned:
        return _fitted(f"GOOD, with {phrases.count(warned, 'warning')}: {phrases.count(files, noun)}", summaries), ODD
    bare = sum(summary.states[State.UNKNOWN] for summary in summaries)
    note = f" ({bare:,} without a checksum)" if bare else ""
    return _fitted(f"GOOD: {phrases.count(files, noun)}{note}", summaries), FINE


def _unusable(summaries: Sequence[Summary], files: int, noun: str) -> str:
    if any(summary.scan.refusals for summary in summaries):
        return f"NOT USABLE: {phrases.count(files, noun)}, but the agent cannot start"
    refused = total(summaries, Severity.UNUSABLE)
    if refused == sum(summary.states[State.TOO_NEW] for summary in summaries):
        return f"TOO NEW: {refused:,} of {phrases.count(files, noun)}"
    return f"NOT USABLE: the agent cannot read {refused:,} of {phrases.count(files, noun)}"


def total(summaries: Sequence[Summary], severity: Severity) -> int:
    """How many problems there are of one severity."""
    return sum(summary.count(severity) for summary in summaries)


def holds_nothing(summary: Summary) -> bool:
    return any(problem.reason == NOTHING_FOUND for problem in summary.problems)


def _verdict_of_file(summary: Summary, *, strict: bool) -> tuple[str, str]:
    warned = summary.count(Severity.WARNING)
    first = summary.problems[0] if summary.problems else None
    if first and first.severity is not Severity.WARNING:
        word, why = _word_of(first)
        style, note = BAD, f": {phrases.shortened(phrases.shown(why), 30)}" if why else ""
    elif warned:
        word = "UNVERIFIED" if summary.states[State.UNKNOWN] else "NOT GOOD (--strict)" if strict else "GOOD"
        style, note = ODD, f", with {phrases.count(warned, 'warning')}"
    elif summary.states[State.UNKNOWN]:
        word, style, note = "UNVERIFIED", ODD, ": it has no checksum"
    else:
        word, style, note = "GOOD", FINE, ""
    where = phrases.shortened(phrases.shown(summary.path), VERDICT_WIDTH - len(word) - len(note) - 2)
    return f"{word}: {where}{note}", style


def _word_of(problem: Problem) -> tuple[str, str]:
    """What the first line calls a problem, and the reason that it adds. DAMAGED is said only of damage."""
    if problem.reason == UNRECOGNISED:
        return "NOT A CHECKPOINT", ""
    if problem.reason == TOO_NEW:
        return "TOO NEW", "a newer program wrote it"
    if problem.severity is Severity.UNSEEN and problem.errno == errno.ENOENT:
        return "NO SUCH PATH", ""
    if problem.severity is Severity.UNSEEN:
        return "COULD NOT LOOK", problem.detail
    return "NOT USABLE" if problem.severity is Severity.UNUSABLE else "DAMAGED", problem.reason


def print_report(summaries: Sequence[Summary], screen: Screen, *, strict: bool, each: bool = False) -> None:
    """Print the verdict, the problems and the summary; for several places one row each, then the problems.

    With `each`, every problem has its own line, even if many are of one sort.
    """
    verdict, style = verdict_of(summaries, strict=strict)
    screen.say((verdict, style))
    if len(summaries) > 1:
        screen.say()
        _print_places(summaries, screen, strict=strict)
        if not screen.is_terminal:
            screen.say()
    for group in grouped((problem for summary in summaries for problem in summary.problems), each=each):
        if screen.is_terminal:
            _print_block(group, screen)
        else:
            screen.say(one_line(group))
    if len(summaries) == 1 and not _saw_nothing(summaries[0]):
        _print_summary(summaries[0], screen)


def _saw_nothing(summary: Summary) -> bool:
    """True if there is nothing to sum up: nothing was found, or the path could not be read."""
    return not summary.files and not summary.scan.previous and summary.scan.lock.held is Held.ABSENT


def one_line(group: Group) -> str:
    """Reason, meaning and next step of a problem, or of many of one sort, on one line."""
    problem = group.first
    step = f". Next: {group.next}" if group.next else ""
    holds = f". Holds {problem.subject}" if problem.subject and len(group.problems) == 1 else ""
    return f"{problem.severity}: {group.title}: {problem.reason}: {group.detail}. {problem.meaning}{holds}{step}"


def _print_places(summaries: Sequence[Summary], screen: Screen, *, strict: bool) -> None:
    rows: list[tuple[Part, ...]] = []
    for summary in summaries:
        verdict, style = verdict_of([summary], strict=strict)
        wrong = sum(summary.count(severity) for severity in (Severity.DAMAGED, Severity.UNSEEN, Severity.UNUSABLE))
        lock = summary.scan.lock.held.value if summary.is_directory and not summary.scan.of_kubelet else "-"
        rows.append(
            (
                phrases.shown(summary.path),
                (re.split("[:,]", verdict)[0], style),
                f"{summary.files:,}",
                f"{wrong:,}",
                f"{summary.count(Severity.WARNING):,}",
                lock,
            )
        )
    headings = ("place", "verdict", "files", "wrong", "warnings", "lock")
    screen.table(headings, rows, ("files", "wrong", "warnings"), spare=("lock", "warnings", "files", "wrong"))


def verdict_word(verdict: Verdict) -> str:
    return "unverified" if verdict is Verdict.UNKNOWN else verdict.value


def loads_in(found: Finding) -> str:
    """The kubelet versions that load the file, for people."""
    assert found.kubelet
    if not found.kubelet.of_kubelet:
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
    screen.say(f"{problem.meaning}: {group.detail}.", indent=2)
    if problem.subject and len(group.problems) == 1:
        screen.say(("holds ", FAINT), str(problem.subject), indent=2)
    if group.next:
        screen.line(f"  → {group.next}")


def _print_summary(summary: Summary, screen: Screen) -> None:
    screen.say()
    screen.say((phrases.shown(summary.path), STRONG))
    if summary.kubelet:
        _print_kubelet(summary.kubelet, screen)
    scan = summary.scan
    if summary.is_directory and (summary.files > len(summary.kubelet) or not scan.of_kubelet):
        screen.pairs(_summary(summary))
        if summary.states[State.DAMAGED] > sum(found.state is State.DAMAGED for found in summary.kubelet):
            screen.line(f"  next         {phrases.command('repair --dry-run --all', summary.path)}")
    elif summary.kinds:
        screen.pairs(_summary(summary)[:4])


def _summary(summary: Summary) -> list[tuple[str, str]]:
    states, scan = summary.states, summary.scan
    this, earlier, unknown = summary.boots_counted()
    sizes = f"{phrases.size(summary.octets)}, the largest {phrases.size(summary.largest)}" if summary.files else ""
    no_temps = "" if summary.path.startswith(SCHEME) else "none"  # etcd has no such files
    boots = [f"{this:,} from this one", f"{earlier:,} from an earlier one", f"{unknown:,} unknown"]
    return [
        ("checkpoints", ", ".join(f"{number:,} {state}" for state, number in states.items() if number) or "none"),
        ("kinds", _kinds(summary)),
        ("generations", _span(summary.lowest_generation, summary.highest_generation)),
        ("boots", ", ".join(b for b in boots if not b.startswith("0 "))),
        ("size", sizes),
        ("previous", f"{scan.previous:,} kept for a rollback, {len(scan.torn):,} torn" if scan.previous else ""),
        ("temp files", f"{len(scan.temps):,} left over" if scan.temps else no_temps),
        ("quarantined", phrases.count(scan.quarantined, "copy", "copies") if scan.quarantined else "none"),
        ("other files", f"{scan.foreign:,}, not checked" if scan.foreign else ""),
        ("journal", f"waits: {scan.journal}" if scan.journal else ""),
        ("lock", str(scan.lock) if scan.lock.held is not Held.ABSENT else "no lock file"),
    ]


def _kinds(summary: Summary) -> str:
    return ", ".join(
        f"{phrases.shown(kind)} v{version}: {number:,}" for (kind, version), number in sorted(summary.kinds.items())[:8]
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
        name = phrases.shown(phrases.base_name(found.path))
        rows.append(
            (name, found.kubelet.format or "-", (verdict_word(verdict), styles[verdict]), checksum, loads_in(found))
        )
    spare = ("loads in kubelet", "form", "checksum")
    screen.table(("file", "form", "verdict", "checksum", "loads in kubelet"), rows, spare=spare)


def _noun(summaries: Sequence[Summary]) -> str:
    of_kubelet = sum(len(summary.kubelet) for summary in summaries)
    if not of_kubelet:
        return "checkpoint"
    if any(found.kubelet and not found.kubelet.of_kubelet for summary in summaries for found in summary.kubelet):
        return "state file"
    return "kubelet state file" if of_kubelet == sum(summary.files for summary in summaries) else "state file"


def _fitted(said: str, summaries: Sequence[Summary]) -> str:
    """The verdict with its place, shortened to fit."""
    where = phrases.shown(summaries[0].path) if len(summaries) == 1 else f"{len(summaries)} places"
    return f"{said} in {phrases.shortened(where, VERDICT_WIDTH - len(said) - 4)}"
