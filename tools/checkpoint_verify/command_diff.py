"""diff: show what changed between two checkpoints, or since the previous generation, path by path."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from . import exitcodes, jsonview, targets, words
from .content import Content, code_of, finding_document, load
from .differences import ADDED, CHANGED, REMOVED, Change, differences
from .documents import preamble
from .examine import Circumstances
from .finding import Finding, State
from .screen import BAD, FAINT, FINE, ODD, STRONG, Screen, screen
from .targets import Target, UsageError

HELP = "show what changed between two checkpoints"
EXAMPLES = """\
  checkpoint-verify diff /var/lib/agent/claims/pod-7.json --previous
  checkpoint-verify diff -d /var/lib/agent/claims pod-7 pod-8
  checkpoint-verify diff /backup/dra_manager_state /var/lib/kubelet/dra_manager_state

Differences do not change the exit code: 0 means that both files could be read.
"""

_SIGNS = {ADDED: ("+", FINE), REMOVED: ("-", BAD), CHANGED: ("~", ODD)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets", nargs="+", metavar="KEY|FILE", help="two keys (see -d) or files, or one with --previous"
    )
    targets.add_directory(parser)
    parser.add_argument("--previous", action="store_true", help="compare with the previous generation")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    before, after = _two(arguments)
    circumstances = Circumstances(named=True, kubelet_version=arguments.kubelet_version)
    contents = [load(before.path, circumstances), load(after.path, circumstances)]
    found = [content.found for content in contents]
    code = exitcodes.worst([code_of(one) for one in found])
    comparable = all(content.is_comparable for content in contents)
    changes = list(differences(_document(contents[0]), _document(contents[1]))) if comparable else []
    if arguments.json:
        members = {
            "before": finding_document(found[0]),
            "after": finding_document(found[1]),
            "compared": comparable,
            "changes": [change._asdict() for change in changes],
        }
        json.dump(preamble("diff", code) | members, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        _print(found, changes, comparable, screen())
    return code


def _two(arguments: argparse.Namespace) -> tuple[Target, Target]:
    given, _ = targets.resolve(arguments.targets, arguments.directory)
    if len(given) != (1 if arguments.previous else 2):
        raise UsageError("give two KEYs or FILEs, or one with --previous")
    if not arguments.previous:
        return given[0], given[1]
    if not given[0].key:
        raise UsageError("only checkpoints have a previous generation")
    return Target(given[0].previous, given[0].key), given[0]


def _document(content: Content) -> dict[str, Any]:
    """Header and data in one document, so that a path in it reads as it does for --mask."""
    header = finding_document(content.found)["header"] or {}
    return header | {"data": content.data}


def _print(found: list[Finding], changes: list[Change], comparable: bool, screen: Screen) -> None:
    for sign, one in zip("-+", found, strict=True):
        what = one.state if one.state is State.GOOD else f"{one.state}: {one.reason}, {one.detail}"
        screen.say((f"{sign * 3} ", FAINT), (words.shown(one.path), STRONG), f"  {what}")
    if not comparable:
        screen.say(("These two cannot be compared; see the states above.", BAD))
        return
    for change in changes:
        sign, style = _SIGNS[change.what]
        screen.say((f"{sign} {words.shown(change.path)}", style), _values(change))
    screen.say((words.count(len(changes), "difference"), FAINT))


def _values(change: Change) -> str:
    if change.what == ADDED:
        return f": {jsonview.compact(change.after)}"
    if change.what == REMOVED:
        return f": {jsonview.compact(change.before)}"
    return f": {jsonview.compact(change.before)} → {jsonview.compact(change.after)}"
