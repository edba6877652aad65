"""diff: show what changed between two checkpoints, or since the previous generation, path by path."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import exitcodes, targets
from ..exitcodes import UsageError
from ..findings.examine import examine_path
from ..findings.finding import Finding, State
from ..screens import phrases
from ..screens.documents import finding_document, print_document
from ..screens.screen import BAD, FAINT, FINE, ODD, STRONG, Screen, screen
from ..targets import Target

HELP = "show what changed between two checkpoints"
EXAMPLES = """\
  checkpoint-verify diff /var/lib/agent/claims/pod-7.json --previous
  checkpoint-verify diff -d /var/lib/agent/claims pod-7 pod-8
  checkpoint-verify diff /backup/dra_manager_state /var/lib/kubelet/dra_manager_state

Differences do not change the exit code: 0 means that both files could be read.
"""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
ADDED, REMOVED, CHANGED = "added", "removed", "changed"
_SIGNS = {ADDED: ("+", FINE), REMOVED: ("-", BAD), CHANGED: ("~", ODD)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets", nargs="+", metavar="KEY|FILE", help="two keys (see -d) or files, or one with --previous"
    )
    targets.add_directory(parser)
    parser.add_argument("--previous", action="store_true", help="compare with the previous generation")


def run(arguments: argparse.Namespace) -> int:

    found = [examine_path(one.path, content=True, kubelet_version=arguments.kubelet_version) for one in _two(arguments)]
    code = exitcodes.worst([one.exit_code for one in found])
    comparable = all(one.header or (one.kubelet and one.data is not None) for one in found)
    changes = list(differences(_document(found[0]), _document(found[1]))) if comparable else []
    if arguments.json:
        members = {
            "before": finding_document(found[0]),
            "after": finding_document(found[1]),
            "compared": comparable,
            "changes": [change._asdict() for change in changes],
        }
        print_document("diff", code, members)
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


def _document(found: Finding) -> dict[str, Any]:
    """Header and data in one document."""
    header = finding_document(found)["header"] or {}
    return header | {"data": found.data}


def _print(found: list[Finding], changes: list[Change], comparable: bool, screen: Screen) -> None:
    for sign, one in zip("-+", found, strict=True):
        what = one.state if one.state is State.GOOD else f"{one.state}: {one.reason}, {one.detail}"
        screen.say((f"{sign * 3} ", FAINT), (phrases.shown(one.path), STRONG), f"  {what}")
    if not comparable:
        screen.say(("These two cannot be compared; see the states above.", BAD))
        return
    for change in changes:
        sign, style = _SIGNS[change.what]
        screen.say((f"{sign} {phrases.shown(change.path)}", style), _values(change))
    screen.say((phrases.count(len(changes), "difference"), FAINT))


def _values(change: Change) -> str:
    if change.what == ADDED:
        return f": {phrases.compact_json(change.after)}"
    if change.what == REMOVED:
        return f": {phrases.compact_json(change.before)}"
    return f": {phrases.compact_json(change.before)} → {phrases.compact_json(change.after)}"


class Change(NamedTuple):
    """One place that differs."""

    what: str
    path: str
    before: Any
    after: Any


def differences(before: Any, after: Any, path: str = "$") -> Iterator[Change]:
    """The changes in the order of the first document, additions last. Lists are compared by position."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            below = _below(path, name)
            if name in after:
                yield from differences(value, after[name], below)
            else:
                yield Change(REMOVED, below, value, None)
        for name in after:
            if name not in before:
                yield Change(ADDED, _below(path, name), None, after[name])
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            below = _below(path, index)
            if index >= len(after):
                yield Change(REMOVED, below, before[index], None)
            elif index >= len(before):
                yield Change(ADDED, below, None, after[index])
            else:
                yield from differences(before[index], after[index], below)
    elif type(before) is not type(after) or before != after:
        yield Change(CHANGED, path, before, after)


def _below(path: str, step: str | int) -> str:
    """The path one step further down."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if _PLAIN.fullmatch(step) else f"{path}[{json.dumps(step, ensure_ascii=False)}]"
