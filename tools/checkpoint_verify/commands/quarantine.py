"""quarantine: list or delete the copies of damaged files."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from typing import Any

from checkpointmanager.format import QUARANTINE, SearchBudget, decode_key, describe_error

from .. import exitcodes
from ..etcd import SCHEME
from ..exitcodes import UsageError
from ..findings.examine import examine_path
from ..findings.finding import Finding, State, Subject
from ..findings.quarantine import Copy, copies_in, copy_at, is_needed, present
from ..findings.summary import SEARCH_COST
from ..registry import subject_at
from ..screens import phrases
from ..screens.documents import in_utc, path_members, print_document, subject_document
from ..screens.screen import FAINT, Screen, complain, screen
from ..targets import Target, add_directory
from .change import Change, add_consent
from .steps import Step

HELP = "list or delete the copies of damaged files"
EXAMPLES = """\
  checkpoint-verify quarantine list /var/lib/agent/claims
  checkpoint-verify quarantine purge -d /var/lib/agent/claims pod-7
  checkpoint-verify quarantine purge --all /var/lib/agent/claims

A COPY is a path, or with -d the name of a copy or a key, which means its newest copy.
purge needs the lock, as repair does: stop the agent first. show COPY shows one, and
restore KEY COPY puts it back.
"""
_COMMANDS = {
    "list": "list the copies, oldest first",
    "purge": "delete copies; --all keeps the last copy of a key that is damaged or gone",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, help_text in _COMMANDS.items():
        sub = verbs.add_parser(verb, help=help_text, description=f"{phrases.sentence(help_text)}.")
        sub.formatter_class = argparse.RawDescriptionHelpFormatter
        own = [line for line in EXAMPLES.splitlines() if f"quarantine {verb}" in line]
        sub.epilog = "\n".join(["examples:", *own])
        if verb == "list":
            sub.add_argument(
                "paths", nargs="*", metavar="DIR", default=["."], help="directories of checkpoints (default: .)"
            )
            sub.add_argument("--json", action="store_true", help="print one JSON document")
            continue
        sub.add_argument("targets", nargs="*", metavar="COPY|DIR", help="the path of a copy, or see -d")
        add_directory(sub)
        sub.add_argument("--all", action="store_true", help="every copy in the directory that is no longer needed")
        add_consent(sub)


def run(arguments: argparse.Namespace) -> int:
    return _list(arguments) if arguments.verb == "list" else _purge(arguments)


def _list(arguments: argparse.Namespace) -> int:
    found: list[Copy] = []
    code = exitcodes.GOOD
    for path in dict.fromkeys(arguments.paths):
        try:
            found += copies_in(path)
        except OSError as error:
            complain(path, describe_error(error))
            code = exitcodes.COULD_NOT_LOOK
    budget = SearchBudget(SEARCH_COST)
    rows = [(copy, present(copy), subject_at(examine_path(copy.path), budget)) for copy in found]
    if arguments.json:
        print_document("quarantine list", code, {"copies": [_document(*row) for row in rows]})
    else:
        _print_list(rows, screen())
    return code


def _print_list(rows: list[tuple[Copy, Finding | None, Subject | None]], screen: Screen) -> None:
    now = datetime.now(UTC)
    cells = [
        (
            phrases.shown(os.path.basename(copy.path)),
            (phrases.some(subject.claims) if subject else "") or "-",
            phrases.age((now - copy.time).total_seconds()),
            phrases.size(copy.size),
            _now(current),
        )
        for copy, current, subject in rows
    ]
    if rows:
        screen.table(
            ("copy", "claim", "age", "size", "its key is now"), cells, ("age", "size"), ("size", "claim", "age")
        )
    screen.say((phrases.count(len(rows), "copy", "copies"), FAINT))


def _purge(arguments: argparse.Namespace) -> int:
    if arguments.all and len(arguments.targets) + bool(arguments.directory) > 1:
        raise UsageError("--all takes one directory")
    if not arguments.all and not arguments.targets:
        raise UsageError("give the COPYs to delete, or a directory with --all")
    directory = next(iter(arguments.targets), arguments.directory or ".")
    named = [] if arguments.all else [_copy(word, arguments.directory) for word in arguments.targets]
    chosen = named or copies_in(directory)
    needed = {copy.path for copy in chosen if arguments.all and is_needed(copy, chosen)}
    directories = {copy.directory for copy in chosen} or {directory}
    if len(directories) > 1:
        raise UsageError("all copies must belong to one directory, because its lock is needed")
    steps = [_step(copy, stays=copy.path in needed) for copy in chosen]
    change = Change("quarantine purge", directories.pop(), steps, arguments)
    return change.carry_out(change.on_store(_delete), keeps=False)


def _step(copy: Copy, *, stays: bool) -> Step:
    action, detail = ("stays", "its key is damaged or gone") if stays else ("deleted", "for good")
    return Step(Target(copy.path, copy.key), Finding(copy.path, State.GOOD, key=copy.key), action=action, detail=detail)


def _delete(store: Any, step: Step) -> None:
    """Delete the copy of a step for good; `store` owns the directory or prefix."""
    if step.target.path.startswith(SCHEME):
        store.delete_copy(step.target.path)
    else:
        os.unlink(step.target.path)


def _copy(word: str, directory: str | None) -> Copy:
    path = word if "/" in word and directory is None else os.path.join(directory or ".", QUARANTINE, word)
    if found := copy_at(path):
        return found
    if decode_key(word) is not None:
        kept = [copy for copy in copies_in(directory or ".") if copy.key == word]
        if kept:
            return kept[-1]
    raise UsageError(f"no such copy: {phrases.shown(word)}; `checkpoint-verify quarantine list` shows all copies")


def _now(found: Finding | None) -> str:
    return "gone" if found is None else f"{found.word} ({found.reason})" if found.reason else found.word


def _document(copy: Copy, current: Finding | None, subject: Subject | None) -> dict[str, Any]:
    return path_members(copy.path) | {
        "key": copy.key,
        "time": in_utc(copy.time),
        "reason": copy.reason,
        "bytes": copy.size,
        "now": current.state if current else "gone",
        "subject": subject_document(subject),
    }
