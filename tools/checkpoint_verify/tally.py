"""The counts for one path of the command line. Its memory grows with the problems, not with the good files."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from checkpointmanager._format.boot import boot_id
from checkpointmanager._format.names import LOCK
from checkpointmanager._format.repair import SearchBudget

from . import exitcodes, meaning
from .agentuser import ROOT, agent_user
from .examine import Circumstances, examine_path, stands_in_a_place, unreadable
from .finding import Finding, State
from .meaning import Problem, Severity
from .opening import Refusal, refusal_of_file
from .scan import Surroundings, scan
from .search import Search
from .subject import subject_at

SEARCH_COST = 5_000_000_000  # bytes to hash, for all damaged files together: one or two tenths of a second


@dataclass(slots=True)
class Tally:
    """Everything that verify reports about one path."""

    path: str
    is_directory: bool = False
    around: Surroundings = field(init=False)
    states: Counter[State] = field(default_factory=Counter)  # of checkpoints and kubelet files
    reasons: Counter[str] = field(default_factory=Counter)  # of the damaged ones
    kinds: Counter[tuple[str, int]] = field(default_factory=Counter)  # kind and version
    boots: Counter[str] = field(default_factory=Counter)
    octets: int = 0
    largest: int = 0
    lowest_generation: int = 0
    highest_generation: int = 0
    kubelet: list[Finding] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    _budget: SearchBudget = field(default_factory=lambda: SearchBudget(SEARCH_COST))

    def __post_init__(self) -> None:
        self.around = Surroundings(self.path)

    @property
    def files(self) -> int:
        return sum(self.states.values())

    def count(self, severity: Severity) -> int:
        return sum(1 for problem in self.problems if problem.severity is severity)

    def exit_code(self, *, strict: bool) -> int:
        return exitcodes.of(
            damaged=self.states[State.DAMAGED] > 0 or self.count(Severity.UNUSABLE) > 0,
            unseen=self.count(Severity.UNSEEN) > 0,
            warned=self.count(Severity.WARNING) > 0,
            strict=strict,
        )

    def boots_counted(self) -> tuple[int, int, int]:
        """How many checkpoints are from this boot, from an earlier boot, and from an unknown one."""
        this, unknown = boot_id(), self.boots[""]
        total = sum(self.boots.values())
        if not this:
            return 0, 0, total
        return self.boots[this], total - self.boots[this] - unknown, unknown

    def add(self, found: Finding) -> None:
        self.states[found.state] += 1
        self.octets += found.size
        self.largest = max(self.largest, found.size)
        if header := found.header:
            self.kinds[header.kind, header.version] += 1
            self.boots[header.boot] += 1
            self.highest_generation = max(self.highest_generation, header.generation)
            self.lowest_generation = min(self.lowest_generation or header.generation, header.generation)
        elif found.kubelet:
            found.kubelet = replace(found.kubelet, data=None)  # the data of many large files would add up
            self.kubelet.append(found)
        refusal = self._refusal_of(found)
        if found.state is State.GOOD and not refusal and not found.warnings:
            return
        if found.state is State.DAMAGED:
            self.reasons[found.reason] += 1
        problems = [meaning.refused(refusal, found.key)] if refusal else []
        if not (found.state is State.UNREADABLE and refusal):  # run by the agent's own user: both are the same problem
            problems += meaning.problems_of(found)
        if problems and (subject := subject_at(found, self._budget)):
            problems = [replace(problem, subject=subject) for problem in problems]
        self.problems += problems

    def _refusal_of(self, found: Finding) -> Refusal | None:
        user = self.around.user
        if user is None or user.uid == ROOT:  # root may read everything
            return None
        if found.header and found.status:
            return refusal_of_file(found.path, found.status, user)
        if found.errno == errno.EACCES and user.uid == os.geteuid():
            with suppress(OSError):
                return refusal_of_file(found.path, os.lstat(found.path), user)
        return None

    def close(self) -> None:
        """Add what concerns the directory as a whole."""
        around = self.around
        self.problems += map(meaning.refused, around.refusals)
        self.problems += map(meaning.tolerated, around.tolerated)
        self.problems += map(meaning.torn_previous, around.torn)
        if around.temps:
            self.problems.append(meaning.left_over(self.path, len(around.temps)))
        if around.orphans:
            self.problems.append(meaning.orphans(self.path, around.orphans))
        self.problems += [meaning.note(self.path, sentence) for sentence in around.notes]
        kinds = sorted({kind for kind, _ in self.kinds})
        if len(kinds) > 1 and self.is_directory:
            self.problems.append(meaning.several_kinds(self.path, kinds))
        if self.is_directory and not (self.files or around.previous or self.problems) and around.lock.held == "absent":
            self.problems.append(meaning.nothing_found(self.path))


def tally_of(
    path: str,
    *,
    kubelet_version: str | None = None,
    opened: Callable[[int], object] = lambda _: None,
    passed: Callable[[Finding], object] | None = None,
) -> Tally:
    """Check a directory or a file. `passed` is called with each finding."""
    tally = Tally(path, os.path.isdir(path) and not stands_in_a_place(path))
    try:
        for found in findings_at(path, tally.around, kubelet_version, opened):
            tally.add(found)
            if passed:
                passed(found)
    except OSError as error:
        tally.problems += meaning.problems_of(unreadable(path, error))
    tally.close()
    return tally


def tallies_of_search(done: Search) -> list[Tally]:
    """Problems of the search itself: it found nothing, or could not enter every directory. Usually empty."""
    tally = Tally(done.parent, is_directory=True)
    if done.closed:
        tally.problems.append(meaning.closed(done.parent, done.closed))
    elif not done.found:
        tally.problems.append(meaning.nothing_found(done.parent))
    return [tally] if tally.problems else []


def findings_at(
    path: str,
    around: Surroundings,
    kubelet_version: str | None,
    opened: Callable[[int], object] = lambda _: None,
    *,
    with_previous: bool = True,
    subjects: bool = False,
) -> Iterable[Finding]:
    """The findings of a directory or a file. Raises OSError if the path does not exist or cannot be read."""
    os.lstat(path)
    if os.path.isdir(path) and not stands_in_a_place(path):
        return scan(
            path,
            around,
            kubelet_version=kubelet_version,
            with_previous=with_previous,
            subjects=subjects,
            opened=opened,
        )
    folder = os.path.dirname(path) or "."
    if os.path.lexists(os.path.join(folder, LOCK)):  # no agent opens a copy elsewhere
        around.user = agent_user(folder)
    return [examine_path(path, Circumstances(named=True, kubelet_version=kubelet_version, subjects=subjects))]
