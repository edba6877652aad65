"""Problems: what a finding means for the node, in one sentence, and the next step, if possible as a command.

Many problems of one sort in one directory are reported as one: 298 equal lines would bury the two others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from checkpointmanager import Reason
from checkpointmanager.format import JOURNAL, LOCK, SUFFIX, describe_error

from ..etcd import SCHEME
from ..registry import KUBELET_NAMES, NO_CHECKSUM
from ..screens import phrases
from .damage import UNRECOGNISED
from .finding import Finding, State, Subject
from .journal import Waiting

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
    errno: int = 0  # why it could not be read
    mend: str = ""  # the command in `next` without its path, if the same one mends every file of this sort


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
        if finding.reason in (Reason.EMPTY, Reason.NUL_FILLED) and finding.path.startswith(SCHEME):
            meaning = "Another program wrote it: etcd returns exactly the bytes that were put into it"
        if finding.kubelet:
            meaning = finding.kubelet.consequence.now
        step = phrases.command("diagnose", finding.path)
        return [_problem(Severity.DAMAGED, finding, finding.detail, meaning, step)]
    if finding.state is State.UNREADABLE:
        meaning = "Its state is unknown"
        problem = _problem(Severity.UNSEEN, finding, finding.detail, meaning, _next_step(finding.detail))
        return [replace(problem, errno=finding.errno)]
    if finding.state is State.TOO_NEW:
        meaning = "A newer program wrote it: it is not damaged, but this installation cannot read it"
        step = "run the newer version of the agent, or upgrade this installation"
        return [_problem(Severity.UNUSABLE, finding, finding.detail, meaning, step)]
    warnings = [*finding.warnings]
    if finding.state is State.UNKNOWN and finding.reason != NO_CHECKSUM:  # that file never has one
        warnings.insert(0, finding.detail)
    meaning = _although_odd(finding)
    step = phrases.command("show", finding.path)
    return [_problem(Severity.WARNING, finding, warning, meaning, step) for warning in warnings]


def _although_odd(finding: Finding) -> str:
    if finding.kubelet is None:
        return "The checkpoint is good"
    if not finding.kubelet.of_kubelet:
        return "The driver version that wrote it may load it; another version takes it for damaged and does not start"
    return "Kubelet loads it anyway" if finding.state is State.GOOD else "Whether kubelet loads it is not known"


def tolerated(refusal: Problem) -> Problem:
    """An agent runs here, since the lock is held: it was configured to allow this, or runs as another user."""
    meaning = "The agent that holds the lock works with it; an agent not configured to allow this would refuse"
    return replace(refusal, severity=Severity.WARNING, meaning=meaning)


def torn_previous(finding: Finding) -> Problem:
    meaning = "The previous generation cannot be used for a rollback; the current one is not affected"
    step = "nothing to do; the next write of this key replaces it"
    return _problem(Severity.WARNING, finding, finding.detail, meaning, step)


def left_over(path: str, count: int) -> Problem:
    meaning = "A writer died in the middle of a write; the checkpoints are not affected"
    step = "nothing to do; the agent removes them when it starts"
    return _warning(path, "temp-files", phrases.count(count, "leftover temp file"), meaning, step)


def orphan(previous: Finding) -> Problem:
    """A previous generation whose checkpoint is not there."""
    header = previous.header
    assert header
    detail = f"only the previous generation of {previous.key} is there: {phrases.generation(header)}"
    meaning = "The file of its checkpoint was deleted by hand, or lost"
    current = os.path.join(os.path.dirname(previous.path), previous.key + SUFFIX)
    step = f"{phrases.command('restore', current)} {phrases.quoted(previous.path)}"
    return replace(_warning(previous.path, "orphan", detail, meaning, step), key=previous.key)


def waiting(journal: Waiting) -> Problem:
    """Changes that no owner has put in place yet."""
    meaning = "The agent ended before it closed the directory; its next start puts in place what is shown here as done"
    step = f"start the agent, or: {phrases.command('repair --all', journal.directory)}"
    return _warning(os.path.join(journal.directory, JOURNAL), "journal", str(journal), meaning, step)


def damaged_records(journal: Waiting) -> Problem:
    detail = phrases.count(journal.damaged, "damaged record")
    meaning = "Their changes are lost if the power failed before the files were written; all other records count"
    step = "check the kernel log for disk errors (dmesg)"
    return _warning(os.path.join(journal.directory, JOURNAL), "journal-damaged", detail, meaning, step)


def note(path: str, sentence: str) -> Problem:
    return _warning(path, "left-out", sentence.rstrip("."), "Not everything was checked", "")


def several_kinds(path: str, kinds: list[str]) -> Problem:
    detail = f"checkpoints of the kinds {', '.join(kinds[:5])}"
    meaning = "A directory holds one kind; an agent refuses checkpoints of another"
    return _warning(path, "several-kinds", detail, meaning, phrases.command("list --sort kind", path))


def nothing_found(path: str) -> Problem:
    detail = f"no <key>.json of a checkpoint, no {LOCK}, none of kubelet's {', '.join(KUBELET_NAMES)}"
    meaning = "Either nothing was ever written here, or this is the wrong directory"
    step = phrases.command("--find", os.path.dirname(os.path.abspath(path)))
    if path.startswith(SCHEME):
        step = "check the prefix"
    return Problem(Severity.UNSEEN, path, "", NOTHING_FOUND, detail, meaning, step)


def closed(parent: str, places: list[tuple[str, OSError]]) -> Problem:
    """Directories that a search could not enter."""
    path, error = places[0]
    number = phrases.count(len(places), "directory", "directories")
    why = describe_error(error)
    detail = f"{number} could not be entered, such as {phrases.shown(path)}: {why}"
    meaning = "There may be state in them that was not found"
    return Problem(Severity.UNSEEN, parent, "", Reason.UNREADABLE, detail, meaning, _next_step(why))


def _warning(path: str, reason: str, detail: str, meaning: str, step: str) -> Problem:
    return Problem(Severity.WARNING, path, "", reason, detail, meaning, step)


def _problem(severity: Severity, finding: Finding, detail: str, meaning: str, step: str) -> Problem:
    reason = finding.reason or "odd"
    return Problem(severity, finding.path, finding.key, reason, detail.rstrip("."), meaning, step)


def _next_step(why: str) -> str:
    if why == "it changes while it is read":
        return "try again; if it persists, look for a program that writes into the file instead of replacing it"
    if "a newer program" in why:
        return "run the newer version of the agent, which can read it; leave the directory alone"
    if "Permission" in why:
        return "run this as root, or as the agent's user"
    if "No such" in why:
        return "check the path"
    return "check the kernel log for disk errors (dmesg), then try again"


MANY = 6  # from this many on, problems of one sort are one line
_NAMED = 3  # of them are named, as examples
_ORDER = {severity: number for number, severity in enumerate(Severity)}


@dataclass(slots=True)
class Group:
    """One or more problems in one directory, all with the same severity, reason and meaning."""

    directory: str
    problems: list[Problem] = field(default_factory=list)

    @property
    def first(self) -> Problem:
        return self.problems[0]

    @property
    def title(self) -> str:
        """The file, or how many files."""
        if len(self.problems) == 1:
            return phrases.shown(self.first.path)
        return f"{phrases.count(len(self.problems), 'file')} in {phrases.shown(self.directory)}"

    @property
    def detail(self) -> str:
        """What was found; for many files, with some of them by name."""
        if len(self.problems) == 1:
            return phrases.shown(self.first.detail)
        some = [_named(problem) for problem in self.problems[:_NAMED]]
        return f"such as {', '.join(some)}"

    @property
    def next(self) -> str:
        if len(self.problems) == 1:
            return self.first.next
        if self.first.mend:
            names = f"-maxdepth 1 -type f -name {phrases.quoted('*' + SUFFIX)}"
            return f"find {phrases.quoted(self.directory)} {names} -exec {self.first.mend} {{}} +"
        damaged = self.first.severity is Severity.DAMAGED
        return phrases.command("repair --dry-run --all" if damaged else "--all", self.directory)


def grouped(problems: Iterable[Problem], *, each: bool) -> list[Group]:
    """The groups, worst first, then by path. With `each`, no problems are grouped."""
    sorts: dict[tuple[str, ...], Group] = {}
    for problem in sorted(problems, key=lambda problem: (_ORDER[problem.severity], problem.path)):
        directory = os.path.dirname(problem.path) or "."
        sort = (problem.severity, problem.reason, problem.meaning, problem.mend, directory)
        sorts.setdefault(sort, Group(directory)).problems.append(problem)
    found: list[Group] = []
    for group in sorts.values():
        together = len(group.problems) >= MANY and not each
        found += [group] if together else [Group(group.directory, [problem]) for problem in group.problems]
    return sorted(found, key=lambda group: (_ORDER[group.first.severity], len(group.problems) == 1, group.first.path))


def _named(problem: Problem) -> str:
    name = phrases.shown(problem.key or phrases.base_name(problem.path))
    claims = problem.subject.claims if problem.subject else ()
    return f"{name} ({phrases.shown(claims[0])})" if claims else name
