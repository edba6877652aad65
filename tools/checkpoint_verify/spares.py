"""Spares: files that updates overwrite. After a crash one of them may hold the newest generation of a key.

While an owner is alive, all names are right and the spares do not matter. The owner keeps `.spares` locked, which any
container can see. FORMAT.md has the rule.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from checkpointmanager._format.envelope import open_sealed
from checkpointmanager._format.names import PREVIOUS, SUFFIX
from checkpointmanager._format.newest import ABSENT, DAMAGED, Candidate, Place, Verdict, candidate_in, decide
from checkpointmanager._format.reason import Damaged, TooNew, reason_of
from checkpointmanager._format.record import Member, MemberKind
from checkpointmanager._format.repair import SearchBudget

from . import disk, words


@dataclass(frozen=True, slots=True)
class Spares:
    """What a dead owner left in the spares of one directory."""

    names: Sequence[str] = ()
    waiting: dict[str, Verdict] = field(default_factory=dict)  # by key: a generation that its own names do not have
    unread: list[str] = field(default_factory=list)  # sentences


def spares_in(names: Sequence[str], folder: int, path: str) -> Spares:
    """Read the spares of an open folder; `path` is for the sentences."""
    spares = Spares(names)
    candidates: dict[str, list[Candidate]] = {}
    budget = SearchBudget()
    for name in names:
        place = words.shown(os.path.join(path, name))
        try:
            candidate = candidate_in(name, disk.read_whole(name, folder), budget)
        except FileNotFoundError:
            continue
        except OSError as error:
            spares.unread.append(f"{place} could not be read ({reason_of(error)}); it may hold a newer generation.")
            continue
        except TooNew as too_new:
            spares.unread.append(f"{place} belongs to a newer release: {too_new}.")
            continue
        if candidate:
            candidates.setdefault(candidate.key, []).append(candidate)
    for key, found in sorted(candidates.items()):
        current, previous = (_generation(name, key, folder) for name in (key + SUFFIX, PREVIOUS + key))
        if verdict := decide(current, previous, found):
            spares.waiting[key] = verdict
    return spares


def sentences_on(spares: Spares, path: str, members: Mapping[str, Member]) -> Iterator[str]:
    """`members` are those of an unfinished transaction that are newer than everything else of their keys."""
    yield from spares.unread
    if spares.names:
        number = words.count(len(spares.names), "spare")
        yield f"{number} left by an owner that did not close, such as {spares.names[0]}"
    for key, verdict in spares.waiting.items():
        yield _sentence(words.shown(os.path.join(path, key + SUFFIX)), verdict, members.get(key))


def _sentence(path: str, verdict: Verdict, member: Member | None) -> str:
    generation, name = verdict.candidate.generation, verdict.candidate.name
    if member and member.kind is MemberKind.REMOVE:
        return f"{path}: generation {generation} is waiting in {name}, but the unfinished transaction removes this key"
    if member:
        return (
            f"{path}: generation {generation} is waiting in {name}; it will become the previous generation, "
            f"because the unfinished transaction has generation {member.generation}"
        )
    waiting = f"{path}: a newer generation is waiting, {generation} in {name}"
    if verdict.place is Place.CURRENT:
        return f"{waiting}; readers of the library already see it"
    return f"{waiting}; because the file is damaged, it will become the previous generation"


def _generation(name: str, key: str, folder: int) -> int:
    try:
        header, _ = open_sealed(disk.read_whole(name, folder), key)
    except FileNotFoundError:
        return ABSENT
    except (OSError, Damaged, TooNew):
        return DAMAGED
    return header.generation
