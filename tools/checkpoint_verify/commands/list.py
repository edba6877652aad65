"""list: print a table of all checkpoints, one row each, including damaged ones."""

from __future__ import annotations

import argparse
import fnmatch
import time
from collections.abc import Callable, Iterator
from typing import Any

from checkpointmanager.format import SearchBudget, boot_id, describe_error

from .. import exitcodes
from ..findings.examine import unreadable
from ..findings.finding import Finding, State
from ..findings.scan import Scan
from ..findings.summary import BOOTS, SEARCH_COST, boot_word
from ..registry import subject_at
from ..screens import phrases
from ..screens.documents import path_members, print_document, subject_document
from ..screens.report import STATE_STYLES
from ..screens.screen import FAINT, Screen, complain, screen

HELP = "print a table of all checkpoints"
EXAMPLES = """\
  checkpoint-verify list /var/lib/agent/claims
  checkpoint-verify list --state damaged --sort age /var/lib/agent/claims
  checkpoint-verify list --key 'pod-*' --boot earlier --json /var/lib/agent/claims
"""

_HEADINGS = ("key", "kind", "version", "gen", "age", "boot", "size", "state")
_WITH_SUBJECT = ("key", "claim", "pods", "devices", *_HEADINGS[1:])
_NUMBERS = ("version", "gen", "age", "size")
_SPARE = ("size", "boot", "kind", "version", "pods", "gen", "devices", "age", "claim")  # dropped in this order
_STATES = [state.value for state in State if state is not State.FOREIGN]
_STYLES = STATE_STYLES | {State.GOOD: ""}


Row = dict[str, Any]  # one row of the table, and one entry of the document
_SORTS: dict[str, Callable[[Row], Any]] = {
    "key": lambda row: row["key"],
    "kind": lambda row: (row["kind"], row["version"] or 0, row["key"]),
    "version": lambda row: (row["version"] or 0, row["form"], row["key"]),
    "generation": lambda row: (row["generation"] or 0, row["key"]),
    "age": lambda row: (row["age_seconds"] is None, row["age_seconds"] or 0.0, row["key"]),
    "boot": lambda row: (row["boot"], row["key"]),
    "size": lambda row: (row["bytes"], row["key"]),
    "state": lambda row: (row["state"] == State.GOOD, row["state"], row["key"]),
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


def run(arguments: argparse.Namespace) -> int:
    now, boot = time.time(), boot_id()
    closed: set[str] = set()  # paths that could not be read, so they have no rows
    budget = SearchBudget(SEARCH_COST)
    code = exitcodes.GOOD
    rows: list[Row] = []
    for path in dict.fromkeys(arguments.paths):
        for found in _findings(path, arguments.kubelet_version, closed):  # not kept: each holds the bytes of its file
            code = exitcodes.worst([code, found.exit_code])
            row = _row(found, now, boot, budget)
            if _wanted(row, arguments) and (arguments.json or found.path not in closed):
                rows.append(row)
    rows.sort(key=_SORTS[arguments.sort])
    if arguments.reverse:
        rows.reverse()
    if arguments.json:
        print_document("list", code, {"checkpoints": rows})
    else:
        _print(rows, screen())
    return code


def _findings(path: str, kubelet_version: str | None, closed: set[str]) -> Iterator[Finding]:
    try:
        yield from Scan(path, content=True, kubelet_version=kubelet_version).findings()
    except OSError as error:
        complain(path, describe_error(error))
        closed.add(path)
        yield unreadable(path, error)


def _row(found: Finding, now: float, boot: str, budget: SearchBudget) -> Row:
    header = found.header
    written = header.written.timestamp() if header else found.modified if found.kubelet else None
    return path_members(found.path) | {
        "key": phrases.shown(found.key or phrases.base_name(found.path)),
        "kind": found.kind,
        "version": header.version if header else None,
        "form": found.kubelet.format if found.kubelet else "",
        "generation": header.generation if header else None,
        "age_seconds": None if written is None else round(now - written, 3),
        "boot": boot_word(header.boot, boot) if header else "unknown",
        "bytes": found.size,
        "state": found.state,
        "reason": found.reason,
        "subject": subject_document(subject_at(found, budget)),
    }


def _wanted(row: Row, arguments: argparse.Namespace) -> bool:
    return (
        (not arguments.state or row["state"] in arguments.state)
        and (not arguments.kind or row["kind"] == arguments.kind)
        and (not arguments.key or fnmatch.fnmatchcase(row["key"], arguments.key))
        and (not arguments.boot or row["boot"] == arguments.boot)
    )


def _print(rows: list[Row], screen: Screen) -> None:
    if not rows:
        screen.say(("no checkpoints", FAINT))
        return
    headings = _WITH_SUBJECT if any(row["subject"] for row in rows) else _HEADINGS
    cells = [[_cell(row, heading) for heading in headings] for row in rows]
    screen.table(headings, cells, _NUMBERS, _SPARE)
    screen.say((phrases.count(len(rows), "checkpoint"), FAINT))


def _cell(row: Row, heading: str) -> str | tuple[str, str]:
    subject = row["subject"] or {"claims": (), "pods": (), "devices": (), "source": ""}
    match heading:
        case "claim":
            return (phrases.some(subject["claims"]) + (" ?" if subject["source"] else "")) or "-"
        case "pods" | "devices":
            return phrases.some(subject[heading]) or "-"
        case "kind":
            return phrases.shown(row["kind"]) or "-"
        case "version":
            return row["form"] or str(row["version"] or "-")
        case "gen":
            return str(row["generation"] or "-")
        case "age":
            return "-" if row["age_seconds"] is None else phrases.age(row["age_seconds"])
        case "size":
            return phrases.size(row["bytes"])
        case "state":
            state = f"{row['state']} ({row['reason']})" if row["state"] is State.DAMAGED else row["state"].value
            return "unverified" if row["state"] is State.UNKNOWN else state, _STYLES[row["state"]]
    return str(row[heading])
