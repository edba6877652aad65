"""list: print a table of all checkpoints, one row each, including damaged ones."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from checkpointmanager._format.boot import boot_id
from checkpointmanager._format.reason import reason_of
from checkpointmanager._format.repair import SearchBudget

from .. import exitcodes
from ..findings.examine import Circumstances, unreadable
from ..findings.finding import Finding, State, Subject, listed
from ..findings.scan import Surroundings, findings_at
from ..findings.summary import BOOTS, SEARCH_COST, boot_word
from ..registry import subject_at
from ..screens import phrases
from ..screens.documents import path_members, print_document, subject_document
from ..screens.screen import BAD, FAINT, ODD, Screen, screen

HELP = "print a table of all checkpoints"
EXAMPLES = """\
  checkpoint-verify list /var/lib/agent/claims
  checkpoint-verify list --state damaged --sort age /var/lib/agent/claims
  checkpoint-verify list --key 'pod-*' --boot earlier --json /var/lib/agent/claims
"""

_HEADINGS = ("key", "kind", "version", "gen", "age", "boot", "size", "state")
_WITH_SUBJECT = ("key", "claim", "pods", "devices", *_HEADINGS[1:])
_NUMBERS = frozenset({"version", "gen", "age", "size"})
_SPARE = ("size", "boot", "kind", "version", "pods", "gen", "devices", "age", "claim")  # dropped in this order
_STATES = [state.value for state in State if state is not State.FOREIGN]
_STYLES = {State.DAMAGED: BAD, State.UNREADABLE: BAD, State.TOO_NEW: ODD, State.UNKNOWN: ODD}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table, as values that can be sorted."""

    path: str
    key: str
    kind: str
    version: int
    form: str  # of a kubelet file, in place of a version
    generation: int
    age: float | None  # seconds; None if the time of writing is unknown
    boot: str
    size: int
    state: State
    reason: str
    subject: Subject | None


_SORTS: dict[str, Callable[[Row], Any]] = {
    "key": lambda row: row.key,
    "kind": lambda row: (row.kind, row.version, row.key),
    "version": lambda row: (row.version, row.form, row.key),
    "generation": lambda row: (row.generation, row.key),
    "age": lambda row: (row.age is None, row.age or 0.0, row.key),
    "boot": lambda row: (row.boot, row.key),
    "size": lambda row: (row.size, row.key),
    "state": lambda row: (row.state == State.GOOD, row.state, row.key),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", default=["."], help="directories or files (default: .)")
    parser.add_argument("--sort", choices=sorted(_SORTS), default="key", help="the column to sort by (default: key)")
    parser.add_argument("--reverse", "-r", action="store_true", help="reverse the order")
    parser.add_argument("--state", action="append", choices=_STATES, help="only files in this state; may be repeated")
    parser.add_argument("--kind", metavar="KIND", help="only this kind")
    parser.add_argument("--key", metavar="GLOB", help="only keys that match this pattern")
    parser.add_argument(
        "--boot", choices=BOOTS, help="only those written in this boot, in an earlier one, or in an unknown one"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    now, boot = time.time(), boot_id()
    rows: list[Row] = []
    closed: set[str] = set()  # paths that could not be read, so they have no rows
    budget = SearchBudget(SEARCH_COST)
    for path in dict.fromkeys(arguments.paths):
        rows += [_row(found, now, boot, budget) for found in _findings(path, arguments.kubelet_version, closed)]
    code = exitcodes.of(
        damaged=any(row.state is State.DAMAGED for row in rows),
        unseen=any(row.state is State.UNREADABLE for row in rows),
    )
    rows = sorted((row for row in rows if _wanted(row, arguments)), key=_SORTS[arguments.sort])
    if arguments.reverse:
        rows.reverse()
    if arguments.json:
        print_document("list", code, {"checkpoints": [_document(row) for row in rows]})
    else:
        _print([row for row in rows if row.path not in closed], screen())
    return code


def _findings(path: str, kubelet_version: str | None, closed: set[str]) -> list[Finding]:
    try:
        wanted = Circumstances(kubelet_version=kubelet_version, subjects=True)
        return list(findings_at(path, Surroundings(path), wanted, with_previous=False))
    except OSError as error:
        print(f"checkpoint-verify: {phrases.shown(path)}: {reason_of(error)}", file=sys.stderr)
        closed.add(path)
        return [unreadable(path, error)]


def _row(found: Finding, now: float, boot: str, budget: SearchBudget) -> Row:
    header = found.header
    written = header.written.timestamp() if header else found.modified if found.kubelet else None
    return Row(
        path=found.path,
        key=found.key or phrases.base_name(found.path),
        kind=found.kind,
        version=header.version if header else 0,
        form=found.kubelet.format if found.kubelet else "",
        generation=header.generation if header else 0,
        age=None if written is None else now - written,
        boot=boot_word(header.boot, boot) if header else "unknown",
        size=found.size,
        state=found.state,
        reason=found.reason,
        subject=found.subject or (subject_at(found, budget) if found.state is not State.GOOD else None),
    )


def _wanted(row: Row, arguments: argparse.Namespace) -> bool:
    return (
        (not arguments.state or row.state in arguments.state)
        and (not arguments.kind or row.kind == arguments.kind)
        and (not arguments.key or fnmatch.fnmatchcase(row.key, arguments.key))
        and (not arguments.boot or row.boot == arguments.boot)
    )


def _print(rows: list[Row], screen: Screen) -> None:
    if not rows:
        screen.say(("no checkpoints", FAINT))
        return
    headings = _WITH_SUBJECT if any(row.subject for row in rows) else _HEADINGS
    cells = [[_cell(row, heading) for heading in headings] for row in rows]
    right = [number for number, heading in enumerate(headings) if heading in _NUMBERS]
    screen.table(headings, cells, right, _SPARE)
    screen.say((phrases.count(len(rows), "checkpoint"), FAINT))


def _cell(row: Row, heading: str) -> str | tuple[str, str]:
    subject = row.subject
    match heading:
        case "key":
            return phrases.shown(row.key)
        case "claim":
            return (listed(subject.claims) + (" ?" if subject.source else "") if subject else "") or "-"
        case "pods":
            return (listed(subject.pods) if subject else "") or "-"
        case "devices":
            return (listed(subject.devices) if subject else "") or "-"
        case "kind":
            return phrases.shown(row.kind) or "-"
        case "version":
            return row.form or str(row.version or "-")
        case "gen":
            return str(row.generation or "-")
        case "age":
            return "-" if row.age is None else phrases.age(row.age)
        case "boot":
            return row.boot
        case "size":
            return phrases.size(row.size)
    state = f"{row.state} ({row.reason})" if row.state is State.DAMAGED else row.state.value
    return "unverified" if row.state is State.UNKNOWN else state, _STYLES.get(row.state, "")


def _document(row: Row) -> dict[str, Any]:
    return path_members(row.path) | {
        "key": phrases.shown(row.key),
        "kind": row.kind,
        "version": row.version or None,
        "form": row.form,
        "generation": row.generation or None,
        "age_seconds": None if row.age is None else round(row.age, 3),
        "boot": row.boot,
        "bytes": row.size,
        "state": row.state,
        "reason": row.reason,
        "subject": subject_document(row.subject),
    }
