"""diagnose: explain what most likely happened to a file, with the evidence, and what you can do."""

from __future__ import annotations

import argparse
import os
from typing import Any

from checkpointmanager.format import SUFFIX, decode_key

from .. import targets
from ..findings import damage
from ..findings.damage import stated_key
from ..findings.diagnosis import GUESS, PROVED, Diagnosis, diagnose
from ..findings.examine import examine_path
from ..findings.finding import Finding, State, Subject
from ..findings.problem import Severity
from ..findings.remedies import Remedy, for_checkpoint, for_kubelet, for_unreadable, for_unverified_driver
from ..findings.summary import summary_of
from ..registry import subject_at
from ..screens import phrases
from ..screens.documents import finding_document, print_document, problem_document, subject_document
from ..screens.report import STATE_STYLES
from ..screens.screen import BAD, FAINT, ODD, STRONG, Screen, screen
from ..targets import Target
from .show import header_pairs, kubelet_pairs, print_claims, print_spot

HELP = "explain what happened to a damaged file, and what you can do"
EXAMPLES = """\
  checkpoint-verify diagnose /var/lib/agent/claims/pod-7.json
  checkpoint-verify diagnose -d /var/lib/agent/claims pod-7
  checkpoint-verify diagnose --kubelet-version 1.35 /var/lib/kubelet/cpu_manager_state
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("targets", nargs="+", metavar="KEY|FILE|DIR", help="a key (see -d), a file, or a directory")
    targets.add_directory(parser)


def run(arguments: argparse.Namespace) -> int:
    given, directory = targets.resolve(arguments.targets, arguments.directory)
    if not given and directory:
        return _offer(directory, arguments)
    target = targets.one(arguments.targets, arguments.directory)
    found = examine_path(target.path, content=True, kubelet_version=arguments.kubelet_version)
    diagnosis = _diagnosis(target, found)
    remedies = _remedies(target, found, diagnosis)
    subject = subject_at(found)
    if arguments.json:
        print_document("diagnose", found.exit_code, _document(found, diagnosis, remedies, subject))
    else:
        _print(found, diagnosis, remedies, subject=subject, screen=screen())
    return found.exit_code


def _offer(directory: str, arguments: argparse.Namespace) -> int:
    """The damaged files of a directory, to choose from."""
    summary = summary_of(directory, kubelet_version=arguments.kubelet_version)
    damaged = [problem for problem in summary.problems if problem.severity is Severity.DAMAGED]
    code = summary.exit_code(strict=False)
    if arguments.json:
        print_document("diagnose", code, {"choices": [problem_document(problem) for problem in damaged]})
        return code
    shown = screen()
    number = phrases.count(len(damaged), "damaged file")
    shown.say((f"{number} in {phrases.shown(directory)}{'; choose one:' if damaged else ''}", STRONG))
    for problem in damaged:
        holds = f", holds {problem.subject}" if problem.subject else ""
        shown.say(f"{phrases.shown(problem.key or phrases.base_name(problem.path))}: {problem.reason}{holds}", indent=2)
        shown.line((f"     {problem.next}", STRONG))
    return code


def _diagnosis(target: Target, found: Finding) -> Diagnosis:
    if found.waits:
        cause = "Nothing is lost: the newest change is in the journal, and its file is older, torn or missing."
        return Diagnosis(cause, PROVED)
    if found.state is State.GOOD:
        return Diagnosis("Nothing happened to this file: it is exactly as it was written.", PROVED)
    if found.state is State.UNREADABLE:
        return Diagnosis(f"Unknown, because the file could not be read: {found.detail}.", PROVED)
    if found.state is State.UNKNOWN:
        return Diagnosis(
            "Perhaps nothing: this file could not be verified, but nothing shows that it is damaged.",
            GUESS,
            [found.detail],
        )
    if found.kubelet:
        diagnosis = Diagnosis(found.detail, PROVED, list(found.warnings))
        diagnosis.spot = damage.damaged_spot(found.blob, None) if found.state is State.DAMAGED else None
        return diagnosis
    return diagnose(found, _other_path(target, found.blob))


def _other_path(target: Target, blob: bytes) -> str:
    """The right path of a file whose header names another key; "" if it names its own."""
    other = stated_key(blob)
    return (
        os.path.join(target.directory, other + SUFFIX) if decode_key(other) is not None and other != target.key else ""
    )


def _remedies(target: Target, found: Finding, diagnosis: Diagnosis) -> list[Remedy]:
    if found.state is State.TOO_NEW:
        return [Remedy("Run the newer version of the agent, which can read it. Do not delete the file.")]
    if found.state is State.UNREADABLE:
        return for_unreadable(target, found)
    if found.state is State.UNKNOWN and found.kubelet and not found.kubelet.of_kubelet:
        return for_unverified_driver(found.path, found.kubelet)
    if found.state is not State.DAMAGED:
        return []
    if found.kubelet:
        return for_kubelet(found.path, found.kubelet)
    return for_checkpoint(target, found, diagnosis.cure, _other_path(target, found.blob))


def _print(
    found: Finding, diagnosis: Diagnosis, remedies: list[Remedy], *, subject: Subject | None, screen: Screen
) -> None:
    reason = f" ({found.reason})" if found.reason else ""
    screen.say((found.word.upper(), STATE_STYLES[found.state]), " ", (phrases.shown(found.path), STRONG), reason)
    screen.say()
    screen.say(("What happened  ", FAINT), (diagnosis.cause, STRONG), (f"  [{diagnosis.certainty}]", FAINT))
    if found.header:
        screen.pairs(header_pairs(found.header, waits=found.waits))
    if subject:
        screen.pairs([("holds", str(subject))])
    if found.kubelet:
        screen.pairs(kubelet_pairs(found)[:-1])
        print_claims(found.kubelet, screen)
    for sentence in diagnosis.evidence:
        screen.say(("- ", FAINT), phrases.shown(sentence), indent=2)
    if diagnosis.spot and found.blob:
        screen.say()
        screen.say((f"Where          offset {diagnosis.spot.offset} of {len(found.blob)}", FAINT))
        print_spot(found.blob, diagnosis.spot, screen)
    if diagnosis.unverified_data is not None:
        screen.say()
        screen.say(("Can be read    ", FAINT), "but nothing vouches for it: a hint for what to hold, or to look for")
        screen.line(phrases.pretty_json(diagnosis.unverified_data))
    if remedies:
        screen.say()
        screen.say(("What to do", FAINT))
    number = 0
    for remedy in remedies:
        number += not remedy.is_preparation
        mark = "" if remedy.is_preparation else f"{number}. "
        screen.say((mark, FAINT), (phrases.shown(remedy.what), ODD if remedy.is_preparation else ""), indent=2)
        for command in remedy.commands:
            screen.line((f"     {command}", STRONG))
    if found.state is State.DAMAGED:
        screen.say()
        screen.say(("The file was not touched.", BAD if not remedies else FAINT))


def _document(found: Finding, diagnosis: Diagnosis, remedies: list[Remedy], subject: Subject | None) -> dict[str, Any]:
    return finding_document(found) | {
        "cause": diagnosis.cause,
        "certainty": diagnosis.certainty,
        "evidence": [phrases.shown(sentence) for sentence in diagnosis.evidence],
        "place": {"offset": diagnosis.spot.offset, "length": diagnosis.spot.length, "what": diagnosis.spot.what}
        if diagnosis.spot
        else None,
        "repairable": diagnosis.cure is not None,
        "subject": subject_document(subject),
        "unverified_data": diagnosis.unverified_data,
        "remedies": [{"what": remedy.what, "commands": list(remedy.commands)} for remedy in remedies],
    }
