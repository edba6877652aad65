"""quarantine: list, show or delete the copies of damaged files."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from typing import Any

from checkpointmanager._format.keys import decode_key
from checkpointmanager._format.names import QUARANTINE
from checkpointmanager._format.reason import reason_of
from checkpointmanager._format.repair import SearchBudget

from .. import exitcodes
from ..findings.examine import examine_path
from ..findings.finding import Finding, Subject, listed
from ..findings.summary import SEARCH_COST
from ..registry import subject_at
from ..remedies import quarantine
from ..remedies.owner import Blocked, owned_store, refuse_if_held
from ..remedies.quarantine import Copy
from ..screens import phrases
from ..screens.documents import path_members, print_document, subject_document
from ..screens.screen import BAD, FAINT, FINE, Answer, Screen, ask, check_that_a_user_can_answer, screen
from ..targets import UsageError, add_directory
from . import show

HELP = "list, show or delete the copies of damaged files"
EXAMPLES = """\
  checkpoint-verify quarantine list /var/lib/agent/claims
  checkpoint-verify quarantine show -d /var/lib/agent/claims pod-7
  checkpoint-verify quarantine purge --all /var/lib/agent/claims

A COPY is a path, or with -d the name of a copy or a key, which means its newest copy.
purge needs the lock, as repair does: stop the agent first. To put a copy back, use restore KEY COPY.
"""
_COMMANDS = {
    "list": "list the copies, oldest first",
    "show": "show what is in a copy",
    "purge": "delete copies; --all keeps the last copy of a key that is damaged or gone",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, help_text in _COMMANDS.items():
        sub = verbs.add_parser(verb, help=help_text, description=f"{help_text[:1].upper()}{help_text[1:]}.")
        sub.formatter_class = argparse.RawDescriptionHelpFormatter
        own = [line for line in EXAMPLES.splitlines() if f"quarantine {verb}" in line]
        sub.epilog = "\n".join(["examples:", *own])
        sub.add_argument("--json", action="store_true", help="print one JSON document")
        if verb == "list":
            sub.add_argument(
                "paths", nargs="*", metavar="DIR", default=["."], help="directories of checkpoints (default: .)"
            )
            continue
        sub.add_argument(
            "targets",
            nargs="*" if verb == "purge" else 1,
            metavar="COPY|DIR" if verb == "purge" else "COPY",
            help="the path of a copy, or see -d",
        )
        add_directory(sub)
        if verb == "show":
            sub.add_argument("--raw", action="store_true", help="copy the bytes to standard output, unchanged")
            continue
        if verb == "purge":
            sub.add_argument("--all", action="store_true", help="every copy in the directory that is no longer needed")
        sub.add_argument("--yes", "-y", action="store_true", help="do not ask for confirmation")


def run(arguments: argparse.Namespace) -> int:
    if arguments.verb == "list":
        return _list(arguments)
    if arguments.verb == "show":
        arguments.targets, arguments.directory = [_named(arguments)[0].path], None
        arguments.previous, arguments.kubelet_version = False, None
        return show.run(arguments)
    try:
        return _purge(arguments)
    except Blocked as why:
        return _report(arguments, [], exitcodes.COULD_NOT_LOOK, f"NOTHING DONE: {phrases.shown(str(why))}")


def _list(arguments: argparse.Namespace) -> int:
    found: list[Copy] = []
    code = exitcodes.GOOD
    for path in dict.fromkeys(arguments.paths):
        try:
            found += quarantine.copies_in(path)
        except OSError as error:
            print(f"checkpoint-verify: {phrases.shown(path)}: {reason_of(error)}", file=sys.stderr)
            code = exitcodes.COULD_NOT_LOOK
    budget = SearchBudget(SEARCH_COST)
    rows = [(copy, quarantine.present(copy), _subject(copy, budget)) for copy in found]
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
            (listed(subject.claims) if subject else "") or "-",
            phrases.age((now - copy.time).total_seconds()),
            phrases.size(copy.size),
            _now(present),
        )
        for copy, present, subject in rows
    ]
    if rows:
        screen.table(("copy", "claim", "age", "size", "its key is now"), cells, (2, 3), ("size", "claim", "age"))
    screen.say((phrases.count(len(rows), "copy", "copies"), FAINT))


def _purge(arguments: argparse.Namespace) -> int:
    if arguments.all and len(arguments.targets) + bool(arguments.directory) > 1:
        raise UsageError("--all takes one directory")
    if not arguments.all and not arguments.targets:
        raise UsageError("give the COPYs to delete, or a directory with --all")
    directory = next(iter(arguments.targets), arguments.directory or ".")
    chosen = quarantine.copies_in(directory) if arguments.all else _named(arguments)
    needed = [copy for copy in chosen if arguments.all and quarantine.is_needed(copy, chosen)]
    doomed = [copy for copy in chosen if copy not in needed]
    directories = {copy.directory for copy in doomed}
    if len(directories) > 1:
        raise UsageError("all copies must belong to one directory, because its lock is needed")
    rest = f", {phrases.count(len(needed), 'copy', 'copies')} of damaged or missing keys kept" if needed else ""
    if not doomed:
        return _report(arguments, [], exitcodes.GOOD, f"GOOD: nothing to delete{rest}")
    [directory] = directories
    refuse_if_held(directory)
    if answer := _declined(arguments, f"Delete {phrases.count(len(doomed), 'copy', 'copies')} for good?"):
        return answer
    done: list[tuple[Copy, str, str]] = []
    with owned_store(directory, owner="checkpoint-verify quarantine") as store:
        for copy in doomed:
            try:
                quarantine.delete(copy, store)
                done.append((copy, "deleted", ""))
            except OSError as error:
                done.append((copy, "left", reason_of(error)))
    left = [copy for copy, action, _ in done if action == "left"]
    code = exitcodes.COULD_NOT_LOOK if left else exitcodes.GOOD
    failed = f", {len(left)} could not be deleted" if left else ""
    said = f"DONE: {phrases.count(len(done) - len(left), 'copy', 'copies')} deleted{failed}{rest}"
    return _report(arguments, done, code, said)


def _declined(arguments: argparse.Namespace, question: str) -> int:
    """0 if the user agrees, otherwise the exit code."""
    if arguments.yes:
        return 0
    check_that_a_user_can_answer("--yes", json=arguments.json)
    answer = ask(question)
    if answer is Answer.NO:
        print("Nothing was changed.")
    return 0 if answer is Answer.YES else exitcodes.COULD_NOT_LOOK


def _named(arguments: argparse.Namespace) -> list[Copy]:
    return [_copy(word, arguments.directory) for word in arguments.targets]


def _copy(word: str, directory: str | None) -> Copy:
    path = word if "/" in word and directory is None else os.path.join(directory or ".", QUARANTINE, word)
    if found := quarantine.copy_at(path):
        return found
    if decode_key(word) is not None:
        kept = [copy for copy in quarantine.copies_in(directory or ".") if copy.key == word]
        if kept:
            return kept[-1]
    raise UsageError(f"no such copy: {phrases.shown(word)}; `checkpoint-verify quarantine list` shows all copies")


def _subject(copy: Copy, budget: SearchBudget) -> Subject | None:
    return subject_at(examine_path(copy.path), budget)


def _now(found: Finding | None) -> str:
    return "gone" if found is None else f"{found.word} ({found.reason})" if found.reason else found.word


def _report(arguments: argparse.Namespace, done: list[tuple[Copy, str, str]], code: int, said: str) -> int:
    if arguments.json:
        steps = [path_members(copy.path) | {"key": copy.key, "action": what, "detail": d} for copy, what, d in done]
        print_document(f"quarantine {arguments.verb}", code, {"summary": said, "steps": steps})
        return code
    shown = screen()
    word, colon, rest = said.partition(":")
    shown.say((word, FINE if code == exitcodes.GOOD else BAD), colon, rest)
    for copy, action, detail in done:
        if action == "left":
            shown.say(f"left: {phrases.shown(copy.path)}: {phrases.shown(detail)}", indent=2)
    return code


def _document(copy: Copy, present: Finding | None, subject: Subject | None) -> dict[str, Any]:
    return path_members(copy.path) | {
        "key": copy.key,
        "time": copy.time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "reason": copy.reason,
        "bytes": copy.size,
        "folder": False,  # since version 0.1 only files are kept
        "now": present.state if present else "gone",
        "subject": subject_document(subject),
    }
