"""Which generation of a key counts after a crash, and where it belongs: the rule alone, without a disk.

A checkpoint's bytes name their key and generation, so an update is found under whatever name it has. An owner applies
the rule when it opens a directory; a reader applies it in memory while there is no owner. FORMAT.md states it in prose.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from .envelope import open_any
from .keys import is_name
from .reason import Damaged, Reason, TooNew
from .repair import SearchBudget, repair

ABSENT = 0  # instead of a generation: no file has the name
DAMAGED = -1  # the file is not a whole checkpoint of this key


class Candidate(NamedTuple):
    """A whole generation of a key, and the file that holds it."""

    generation: int
    name: str
    key: str
    blob: bytes
    mended: bool = False  # the file differs from these bytes, which are its exact repair

    def __repr__(self) -> str:
        return f"Candidate({self.key!r}, generation {self.generation}, {self.name!r})"  # never data


class Place(Enum):
    """Where the highest candidate belongs."""

    CURRENT = auto()
    PREVIOUS = auto()  # for a rollback, if the user decides on one


class Verdict(NamedTuple):
    place: Place
    candidate: Candidate


def candidate_in(name: str, blob: bytes, budget: SearchBudget) -> Candidate | None:
    """The checkpoint in the file of this name; None if it is damaged beyond exact repair. Raises TooNew."""
    try:
        return _candidate(name, blob)
    except Damaged:
        mended = repair(blob, budget)
    if mended is None:
        return None
    try:
        return _candidate(name, mended.blob)._replace(mended=True)
    except (Damaged, TooNew):
        return None


def decide(current: int, previous: int, candidates: Iterable[Candidate]) -> Verdict | None:
    """The move needed for a key with these generations under its two names; None if everything is in place.

    The highest generation wins. Damaged bytes are never replaced. An absent checkpoint was removed, so nothing
    creates it again.
    """
    best = highest(candidates)
    if best is None or current == ABSENT:
        return None
    if current == DAMAGED:
        return Verdict(Place.PREVIOUS, best) if best.generation > previous else None
    return Verdict(Place.CURRENT, best) if best.generation > current else None


def highest(candidates: Iterable[Candidate]) -> Candidate | None:
    """The first of those with the highest generation; None if there are none."""
    return max(candidates, key=_generation, default=None)


def _generation(candidate: Candidate) -> int:
    return candidate.generation


def _candidate(name: str, blob: bytes) -> Candidate:
    header, _ = open_any(blob)
    if not is_name(header.key):  # elsewhere the key is compared with a file name; here it becomes one
        raise Damaged(Reason.WRONG_SHAPE, "the checksum holds, but the header's key cannot be one")
    return Candidate(header.generation, name, header.key, blob)
