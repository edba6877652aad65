"""Reports many problems of one sort in one directory as one: 298 equal lines would bury the two others."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from . import words
from .meaning import Problem, Severity

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
            return words.shown(self.first.path)
        return f"{words.count(len(self.problems), 'file')} in {words.shown(self.directory)}"

    @property
    def detail(self) -> str:
        """What was found; for many files, with some of them by name."""
        if len(self.problems) == 1:
            return words.shown(self.first.detail)
        some = [_named(problem) for problem in self.problems[:_NAMED]]
        return f"such as {', '.join(some)}"

    @property
    def next(self) -> str:
        if len(self.problems) == 1:
            return self.first.next
        damaged = self.first.severity is Severity.DAMAGED
        command = "repair --dry-run --all" if damaged else "--all"
        return f"checkpoint-verify {command} {words.quoted(self.directory)}"


def grouped(problems: Iterable[Problem], *, each: bool) -> list[Group]:
    """The groups, worst first, then by path. With `each`, no problems are grouped."""
    sorts: dict[tuple[str, ...], Group] = {}
    for problem in sorted(problems, key=lambda problem: (_ORDER[problem.severity], problem.path)):
        directory = os.path.dirname(problem.path) or "."
        sort = (problem.severity, problem.reason, problem.meaning, directory)
        sorts.setdefault(sort, Group(directory)).problems.append(problem)
    found: list[Group] = []
    for group in sorts.values():
        together = len(group.problems) >= MANY and not each
        found += [group] if together else [Group(group.directory, [problem]) for problem in group.problems]
    return sorted(found, key=lambda group: (_ORDER[group.first.severity], len(group.problems) == 1, group.first.path))


def _named(problem: Problem) -> str:
    name = words.shown(problem.key or words.base_name(problem.path))
    claims = problem.subject.claims if problem.subject else ()
    return f"{name} ({words.shown(claims[0])})" if claims else name
