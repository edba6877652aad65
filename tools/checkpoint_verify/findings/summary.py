"""The counts for one path of the command line. Its memory grows with the problems, not with the good files."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from checkpointmanager.format import SearchBudget, boot_id

from .. import exitcodes
from ..registry import subject_at
from . import problem
from .agent import ROOT, Held, refusal_of_file
from .examine import unreadable
from .finding import Finding, State
from .problem import Problem, Severity
from .scan import Scan
from .search import Search

SEARCH_COST = 5_000_000_000  # bytes to hash, for all damaged files together: one or two tenths of a second


BOOTS = ("this", "earlier", "unknown")


def boot_word(boot: str, current: str) -> str:
    """In which boot a checkpoint was written; `current` is the kernel's boot id."""
    if not boot or not current:
        return "unknown"
    return "this" if boot == current else "earlier"


@dataclass(slots=True)
class Summary:
    """Everything that verify reports about one path."""

    scan: Scan
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

    @property
    def path(self) -> str:
        return self.scan.path

    @property
    def is_directory(self) -> bool:
        return self.scan.is_directory

    @property
    def files(self) -> int:
        return sum(self.states.values())

    def count(self, severity: Severity) -> int:
        return sum(one.severity is severity for one in self.problems)

    def exit_code(self, *, strict: bool) -> int:
        return exitcodes.of(
            damaged=self.states[State.DAMAGED] > 0 or self.count(Severity.UNUSABLE) > 0,
            unseen=self.count(Severity.UNSEEN) > 0,
            warned=self.count(Severity.WARNING) > 0,
            strict=strict,
        )

    def boots_counted(self) -> tuple[int, ...]:
        """How many checkpoints are from this boot, from an earlier boot, and from an unknown one."""
        counts: Counter[str] = Counter()
        for boot, number in self.boots.items():
            counts[boot_word(boot, boot_id())] += number
        return tuple(counts[word] for word in BOOTS)

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
        problems = [refusal] if refusal else []
        if not (found.state is State.UNREADABLE and refusal):  # run by the agent's own user: both are the same problem
            problems += problem.problems_of(found)
        if problems and (subject := subject_at(found, self._budget)):
            problems = [replace(one, subject=subject) for one in problems]
        self.problems += problems

    def _refusal_of(self, found: Finding) -> Problem | None:
        user = self.scan.user
        if user is None or user.uid == ROOT:  # root may read everything
            return None
        if found.header and found.status:
            return refusal_of_file(found.path, found.key, found.status, user)
        if found.errno == errno.EACCES and user.uid == os.geteuid():
            with suppress(OSError):
                return refusal_of_file(found.path, found.key, os.lstat(found.path), user)
        return None

    def close(self) -> None:
        """Add what concerns the directory as a whole."""
        scan = self.scan
        self.problems += scan.refusals
        self.problems += map(problem.torn_previous, scan.torn)
        if scan.temps:
            self.problems.append(problem.left_over(self.path, len(scan.temps)))
        self.problems += [problem.orphan(one) for one in scan.orphans if one.header]
        if scan.journal:
            self.problems.append(problem.waiting(scan.journal))
            if scan.journal.damaged:
                self.problems.append(problem.damaged_records(scan.journal))
        self.problems += [problem.note(self.path, sentence) for sentence in scan.notes]
        kinds = sorted({kind for kind, _ in self.kinds})
        if len(kinds) > 1 and self.is_directory:
            self.problems.append(problem.several_kinds(self.path, kinds))
        if self.is_directory and not (self.files or scan.previous or self.problems) and scan.lock.held is Held.ABSENT:
            self.problems.append(problem.nothing_found(self.path))


def summary_of(path: str, *, kubelet_version: str | None = None, step: Callable[[], object] = lambda: None) -> Summary:
    """Check a directory or a file. `step` is called after each file."""
    summary = Summary(Scan(path, kubelet_version=kubelet_version))
    try:
        for found in summary.scan.findings():
            summary.add(found)
            step()
    except OSError as error:
        summary.problems += problem.problems_of(unreadable(path, error))
    summary.close()
    return summary


def summaries_of_search(done: Search) -> list[Summary]:
    """Problems of the search itself: it found nothing, or could not enter every directory. Usually empty."""
    summary = Summary(Scan(done.parent))
    if done.closed:
        summary.problems.append(problem.closed(done.parent, done.closed))
    elif not done.found:
        summary.problems.append(problem.nothing_found(done.parent))
    return [summary] if summary.problems else []
