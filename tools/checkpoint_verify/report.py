"""From tallies to what is told: the verdict line, a line a problem, the summary, and the JSON document."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from checkpointmanager import __version__

from . import exitcodes, words
from .finding import Finding, State
from .kubelet import Verdict
from .lockstate import Held, LockState
from .meaning import NOTHING_FOUND, Problem, Severity
from .screen import BAD, FAINT, FINE, ODD, STRONG, Screen
from .tally import Tally

JSON_SCHEMA = 1  # counts up only when a member is removed or changes its meaning; added ones do not count
VERDICT_WIDTH = 80
TERMINAL_PROBLEMS = 50  # more would scroll the verdict away

_STYLES = {Severity.DAMAGED: BAD, Severity.UNSEEN: BAD, Severity.UNUSABLE: BAD, Severity.WARNING: ODD}


def verdict_of(tallies: Sequence[Tally], *, strict: bool) -> tuple[str, str]:
    """The first line, of at most 80 characters, and its style."""
    damaged = sum(tally.states[State.DAMAGED] for tally in tallies)
    unseen = sum(tally.count(Severity.UNSEEN) for tally in tallies)
    warned = sum(tally.count(Severity.WARNING) for tally in tallies)
    files = sum(tally.files for tally in tallies)
    if len(tallies) == 1 and not tallies[0].is_directory:
        return _verdict_of_file(tallies[0], strict=strict)
    noun = _noun(tallies)
    also = f", {unseen:,} not looked at" if damaged and unseen else ""
    if damaged:
        return _fitted(f"DAMAGED: {damaged:,} of {words.count(files, noun)}{also}", tallies), BAD
    if any(tally.count(Severity.UNUSABLE) for tally in tallies):
        return _fitted(_unusable(tallies, files, noun), tallies), BAD
    if strict and warned:
        return _fitted(f"NOT GOOD: {words.count(warned, 'warning')} (--strict)", tallies), BAD
    if unseen and not files and all(_holds_nothing(tally) for tally in tallies):
        return _fitted("NOTHING FOUND: no checkpoint, no kubelet state file", tallies), BAD
    if unseen:
        return _fitted(f"COULD NOT LOOK: {words.count(unseen, 'problem')}", tallies), BAD
    if warned:
        return _fitted(f"GOOD, with {words.count(warned, 'warning')}: {words.count(files, noun)}", tallies), ODD
    return _fitted(f"GOOD: {words.count(files, noun)}", tallies), FINE


def _unusable(tallies: Sequence[Tally], files: int, noun: str) -> str:
    if any(tally.around.refusals for tally in tallies):
        return f"NOT USABLE: {words.count(files, noun)}, but the agent cannot start"
    refused = sum(tally.count(Severity.UNUSABLE) for tally in tallies)
    return f"NOT USABLE: the agent cannot read {refused:,} of {words.count(files, noun)}"


def _holds_nothing(tally: Tally) -> bool:
    return any(problem.reason == NOTHING_FOUND for problem in tally.problems)


def _verdict_of_file(tally: Tally, *, strict: bool) -> tuple[str, str]:
    warned = tally.count(Severity.WARNING)
    first = tally.problems[0] if tally.problems else None
    if first and first.severity is not Severity.WARNING:
        word = {Severity.DAMAGED: "DAMAGED", Severity.UNUSABLE: "NOT USABLE"}.get(first.severity, "COULD NOT LOOK")
        style, note = BAD, f": {words.shortened(words.shown(first.reason), 30)}"
    elif warned:
        word = "UNKNOWN" if tally.states[State.UNKNOWN] else "NOT GOOD (--strict)" if strict else "GOOD"
        style, note = ODD, f", with {words.count(warned, 'warning')}"
    else:
        word, style, note = "GOOD", FINE, ""
    where = words.shortened(words.shown(tally.path), VERDICT_WIDTH - len(word) - len(note) - 2)
    return f"{word}: {where}{note}", style


def print_report(tallies: Sequence[Tally], screen: Screen, *, strict: bool) -> None:
    verdict, style = verdict_of(tallies, strict=strict)
    screen.say((verdict, style))
    problems = sorted(
        (problem for tally in tallies for problem in tally.problems),
        key=lambda problem: (list(Severity).index(problem.severity), problem.path),
    )
    if screen.is_terminal:
        _print_blocks(problems, screen)
    else:
        for problem in problems:
            screen.say(one_line(problem))
    for tally in tallies:
        _print_summary(tally, screen)


def one_line(problem: Problem) -> str:
    """Reason, meaning and next step of a problem."""
    step = f". Next: {problem.next}" if problem.next else ""
    where = words.shown(problem.path)
    return f"{problem.severity}: {where}: {problem.reason}: {words.shown(problem.detail)}. {problem.meaning}{step}"


def document_of(tallies: Sequence[Tally], *, strict: bool) -> dict[str, Any]:
    """The JSON document of verify; README.md describes each member."""
    code = exitcodes.worst([tally.exit_code(strict=strict) for tally in tallies])
    return preamble("verify", code) | {
        "verdict": _verdict_word(tallies, strict=strict),
        "summary": verdict_of(tallies, strict=strict)[0],
        "paths": [_path_document(tally, strict=strict) for tally in tallies],
        "problems": [problem_document(problem) for tally in tallies for problem in tally.problems],
    }


def _verdict_word(tallies: Sequence[Tally], *, strict: bool) -> str:
    def count(severity: Severity) -> int:
        return sum(tally.count(severity) for tally in tallies)

    if any(tally.states[State.DAMAGED] for tally in tallies) or (strict and count(Severity.WARNING)):
        return "damaged"
    worst = next((severity for severity in (Severity.UNUSABLE, Severity.UNSEEN) if count(severity)), None)
    if worst is Severity.UNSEEN and all(map(_holds_nothing, tallies)):
        return NOTHING_FOUND
    return worst or ("warnings" if count(Severity.WARNING) else "good")


def preamble(command: str, code: int) -> dict[str, Any]:
    """The members that all JSON documents of this tool begin with."""
    return {
        "schema": JSON_SCHEMA,
        "tool": f"checkpoint-verify {__version__}",
        "command": command,
        "time": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "exit_code": code,
    }


def path_members(path: str) -> dict[str, str]:
    """A path in JSON. One that is not UTF-8 is escaped for people and given in base64 for programs."""
    members = {"path": words.shown(path)}
    try:
        path.encode()
    except UnicodeEncodeError:
        members["path_base64"] = base64.b64encode(os.fsencode(path)).decode()
    return members


def problem_document(problem: Problem) -> dict[str, Any]:
    return path_members(problem.path) | {
        "severity": problem.severity,
        "key": problem.key,
        "reason": problem.reason,
        "detail": words.shown(problem.detail),
        "meaning": problem.meaning,
        "next": problem.next,
    }


def kubelet_document(found: Finding) -> dict[str, Any]:
    """A kubelet file without its content."""
    assert found.kubelet
    kubelet = found.kubelet
    return path_members(found.path) | {
        "kind": kubelet.kind,
        "format": kubelet.format,
        "verdict": kubelet.verdict,
        "reason": kubelet.reason,
        "detail": kubelet.detail,
        "expected": kubelet.expected,
        "actual": kubelet.actual,
        "warnings": list(kubelet.warnings),
        "kubelet_version": kubelet.kubelet_version,
        "loads_in": dict(kubelet.loads_in),
    }


def loads_in(found: Finding) -> str:
    """The kubelet versions that load the file, in words."""
    assert found.kubelet
    answers = found.kubelet.loads_in
    loading = [version for version, answer in answers.items() if answer]
    if not loading:
        return "not known" if any(answer is None for answer in answers.values()) else "none"
    if len(loading) == 1:
        return loading[0]
    versions = list(answers)
    first, last = versions.index(loading[0]), versions.index(loading[-1])
    return f"{loading[0]} to {loading[-1]}" if last - first + 1 == len(loading) else ", ".join(loading)


def lock_document(lock: LockState) -> dict[str, Any]:
    owner = lock.owner
    return {
        "state": lock.held,
        "pids": list(lock.pids),
        "holder": {name: getattr(owner, name) for name in ("pid", "host", "command", "since")} | {"owner": owner.label}
        if owner
        else None,
    }


def _print_blocks(problems: list[Problem], screen: Screen) -> None:
    """On a terminal the next step has a line of its own, to be copied."""
    for problem in problems[:TERMINAL_PROBLEMS]:
        screen.say()
        severity = problem.severity.replace("-", " ")
        reason = (f"  {problem.reason}", FAINT)
        screen.say((severity, _STYLES[problem.severity]), "  ", (words.shown(problem.path), STRONG), reason)
        screen.say(f"{problem.meaning}: {words.shown(problem.detail)}.", indent=2)
        if problem.next:
            screen.verbatim(f"  → {problem.next}")
    if len(problems) > TERMINAL_PROBLEMS:
        screen.say()
        screen.say((f"… and {len(problems) - TERMINAL_PROBLEMS:,} more; all of them with --json or in a pipe.", ODD))


def _print_summary(tally: Tally, screen: Screen) -> None:
    screen.say()
    screen.say((words.shown(tally.path), STRONG))
    if tally.kubelet:
        _print_kubelet(tally.kubelet, screen)
    around = tally.around
    if tally.is_directory and (tally.files > len(tally.kubelet) or not around.of_kubelet):
        screen.pairs(_summary(tally))
    elif tally.kinds:
        screen.pairs(_summary(tally)[:4])


def _summary(tally: Tally) -> list[tuple[str, str]]:
    states, around = tally.states, tally.around
    repairable = states[State.DAMAGED] > sum(found.state is State.DAMAGED for found in tally.kubelet)
    this, earlier, unknown = tally.boots_told()
    sizes = f"{words.size(tally.octets)}, the largest {words.size(tally.largest)}" if tally.files else ""
    boots = [f"{this:,} from this one", f"{earlier:,} from an earlier one", f"{unknown:,} unknown"]
    return [
        ("checkpoints", ", ".join(f"{number:,} {state}" for state, number in states.items() if number) or "none"),
        ("kinds", _kinds(tally)),
        ("generations", _span(tally.lowest_generation, tally.highest_generation)),
        ("boots", ", ".join(b for b in boots if not b.startswith("0 "))),
        ("size", sizes),
        ("previous", f"{around.previous:,} kept to go back to, {len(around.torn):,} torn" if around.previous else ""),
        ("temp files", f"{len(around.temps):,} left over" if around.temps else "none"),
        ("quarantined", words.count(around.quarantined, "copy", "copies") if around.quarantined else "none"),
        ("other files", f"{around.foreign:,}, not looked at" if around.foreign else ""),
        ("lock", str(around.lock) if around.lock.held is not Held.ABSENT else "no lock file"),
        ("next", f"checkpoint-verify repair --dry-run --all {words.quoted(tally.path)}" if repairable else ""),
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
        rows.append((name, found.kubelet.format or "-", (verdict, styles[verdict]), checksum, loads_in(found)))
    screen.table(("file", "form", "verdict", "checksum", "loads in kubelet"), rows)


def _path_document(tally: Tally, *, strict: bool) -> dict[str, Any]:
    around = tally.around
    this, earlier, unknown = tally.boots_told()
    return path_members(tally.path) | {
        "type": "directory" if tally.is_directory else "file",
        "of_kubelet": around.of_kubelet,
        "exit_code": tally.exit_code(strict=strict),
        "files": tally.files,
        "states": {state: tally.states[state] for state in State if state is not State.FOREIGN},
        "damaged": dict(tally.reasons),
        "kinds": [
            {"kind": kind, "version": version, "count": number}
            for (kind, version), number in sorted(tally.kinds.items())
        ],
        "generations": {"lowest": tally.lowest_generation, "highest": tally.highest_generation},
        "boots": {"this": this, "earlier": earlier, "unknown": unknown},
        "bytes": {"total": tally.octets, "largest": tally.largest},
        "previous": {"count": around.previous, "torn": len(around.torn), "orphans": around.orphans},
        "temp_files": len(around.temps),
        "quarantined": around.quarantined,
        "foreign": around.foreign,
        "lock": lock_document(around.lock),
        "kubelet": [kubelet_document(found) for found in tally.kubelet],
    }


def _noun(tallies: Sequence[Tally]) -> str:
    of_kubelet = sum(len(tally.kubelet) for tally in tallies)
    if not of_kubelet:
        return "checkpoint"
    return "kubelet state file" if of_kubelet == sum(tally.files for tally in tallies) else "state file"


def _fitted(said: str, tallies: Sequence[Tally]) -> str:
    """The verdict with its place, shortened to fit."""
    where = words.shown(tallies[0].path) if len(tallies) == 1 else f"{len(tallies)} places"
    return f"{said} in {words.shortened(where, VERDICT_WIDTH - len(said) - 4)}"
