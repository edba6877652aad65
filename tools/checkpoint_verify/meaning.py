"""What each reason means for the node, in one sentence, and the next step, if possible as a command."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from enum import StrEnum

from checkpointmanager import Reason
from checkpointmanager._format.names import LOCK
from checkpointmanager._format.reason import reason_of

from . import words
from .consequences import consequence_of
from .finding import Finding, State
from .kubelet import KUBELET_NAMES, NO_CHECKSUM, NVIDIA
from .opening import Refusal
from .remains import UNRECOGNISED
from .subject import Subject

NOTHING_FOUND = "nothing-found"


class Severity(StrEnum):
    """How bad a problem is, worst first."""

    DAMAGED = "damaged"
    UNSEEN = "could-not-look"
    UNUSABLE = "not-usable"  # whole, but the agent will not use it
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One line of the report."""

    severity: Severity
    path: str
    key: str
    reason: str
    detail: str
    meaning: str
    next: str
    subject: Subject | None = None


_MEANINGS: dict[str, str] = {
    Reason.EMPTY: "The content never reached the disk, or something emptied the file",
    Reason.NUL_FILLED: "Most likely the machine lost power before the data reached the disk",
    Reason.TRUNCATED: "The end of the file is missing",
    Reason.TRAILING_BYTES: "The checkpoint is whole, but something was appended to it",
    Reason.CHECKSUM_MISMATCH: "Bytes were changed after the file was written",
    Reason.NOT_JSON: "The content is not JSON, so no program can read it",
    Reason.WRONG_SHAPE: "The content does not follow the file format",
    Reason.WRONG_KEY: "The file was copied or renamed from another key",
    Reason.TOO_LARGE: "The file is larger than a checkpoint may be",
    Reason.NOT_A_FILE: "Something other than a file has the checkpoint's name",
    UNRECOGNISED: "It was never a checkpoint, but the agent takes it for a damaged one",
}


def problems_of(finding: Finding) -> list[Problem]:
    """The problems of a file; none if it is good and nothing about it is odd."""
    if finding.state is State.DAMAGED:
        meaning = _MEANINGS.get(finding.reason, "It cannot be trusted")
        if finding.kubelet:
            meaning = consequence_of(finding.kubelet.kind).now
        return [_problem(Severity.DAMAGED, finding, finding.detail, meaning, _diagnose(finding.path))]
    if finding.state is State.UNREADABLE:
        meaning = "Its state is unknown"
        return [_problem(Severity.UNSEEN, finding, finding.detail, meaning, _next_step(finding.detail))]
    if finding.state is State.TOO_NEW:
        meaning = "A newer program wrote it: it is not damaged, but this installation cannot read it"
        step = "run the newer version of the agent, or upgrade this installation"
        return [_problem(Severity.UNUSABLE, finding, finding.detail, meaning, step)]
    warnings = [*finding.warnings]
    if finding.state is State.UNKNOWN and finding.reason != NO_CHECKSUM:  # that file never has one
        warnings.insert(0, finding.detail)
    meaning = _although_odd(finding)
    step = f"checkpoint-verify show {words.quoted(finding.path)}"
    return [_problem(Severity.WARNING, finding, warning, meaning, step) for warning in warnings]


def _although_odd(finding: Finding) -> str:
    if finding.kubelet is None:
        return "The checkpoint is good"
    if finding.kubelet.kind == NVIDIA:
        return "The driver version that wrote it may load it; another version takes it for damaged and does not start"
    return "Kubelet loads it anyway" if finding.state is State.GOOD else "Whether kubelet loads it is not known"


def refused(refusal: Refusal, key: str = "") -> Problem:
    return Problem(Severity.UNUSABLE, refusal.path, key, refusal.reason, refusal.detail, refusal.meaning, refusal.next)


def tolerated(refusal: Refusal) -> Problem:
    """An agent runs here, since the lock is held: it was configured to allow this, or runs as another user."""
    meaning = "The agent that holds the lock works with it; an agent not configured to allow this would refuse"
    return replace(refused(refusal), severity=Severity.WARNING, meaning=meaning)


def torn_previous(finding: Finding) -> Problem:
    meaning = "The previous generation cannot be used for a rollback; the current one is not affected"
    return _problem(
        Severity.WARNING, finding, finding.detail, meaning, "nothing to do; the next write of this key replaces it"
    )


def left_over(path: str, count: int) -> Problem:
    return Problem(
        Severity.WARNING,
        path,
        "",
        "temp-files",
        f"{words.count(count, 'leftover temp file')}",
        "A writer died in the middle of a write; the checkpoints are not affected",
        "nothing to do; the agent removes them when it starts",
    )


def orphans(path: str, count: int) -> Problem:
    return Problem(
        Severity.WARNING,
        path,
        "",
        "orphans",
        f"{words.count(count, 'previous generation')} without a current one",
        "The checkpoint was removed, or its file was lost",
        "nothing to do if it was removed; otherwise copy the .previous- file to a safe place before the agent starts",
    )


def note(path: str, sentence: str) -> Problem:
    return Problem(Severity.WARNING, path, "", "left-out", sentence.rstrip("."), "Not everything was checked", "")


def several_kinds(path: str, kinds: list[str]) -> Problem:
    return Problem(
        Severity.WARNING,
        path,
        "",
        "several-kinds",
        f"checkpoints of the kinds {', '.join(kinds[:5])}",
        "A directory holds one kind; an agent refuses checkpoints of another",
        f"checkpoint-verify list --sort kind {words.quoted(path)}",
    )


def nothing_found(path: str) -> Problem:
    return Problem(
        Severity.UNSEEN,
        path,
        "",
        NOTHING_FOUND,
        f"no <key>.json of a checkpoint, no {LOCK}, none of kubelet's {', '.join(KUBELET_NAMES)}",
        "Either nothing was ever written here, or this is the wrong directory",
        f"checkpoint-verify --find {words.quoted(os.path.dirname(os.path.abspath(path)))}",
    )


def closed(parent: str, places: list[tuple[str, OSError]]) -> Problem:
    """Directories that a search could not enter."""
    path, error = places[0]
    number = words.count(len(places), "directory", "directories")
    return Problem(
        Severity.UNSEEN,
        parent,
        "",
        Reason.UNREADABLE,
        f"{number} could not be entered, such as {words.shown(path)}: {reason_of(error)}",
        "There may be state in them that was not found",
        _next_step(reason_of(error)),
    )


def _problem(severity: Severity, finding: Finding, detail: str, meaning: str, step: str) -> Problem:
    reason = finding.reason or "odd"
    return Problem(severity, finding.path, finding.key, reason, detail.rstrip("."), meaning, step)


def _diagnose(path: str) -> str:
    return f"checkpoint-verify diagnose {words.quoted(path)}"


def _next_step(why: str) -> str:
    if why == "it changes while it is read":
        return "try again; if it persists, look for a program that writes into the file instead of replacing it"
    if "Permission" in why:
        return "run this as root, or as the agent's user"
    if "No such" in why:
        return "check the path"
    return "check the kernel log for disk errors (dmesg), then try again"
