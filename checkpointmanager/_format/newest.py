"""Which generation of a key counts after a crash, and where it belongs: the rule, without a disk.

The bytes of a checkpoint say what they are, so those of an update are found wherever they lie. An owner applies the
rule when it opens a directory, a reader in memory as long as no owner has. FORMAT.md has it in prose.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from .envelope import open_any
from .reason import Damaged, TooNew
from .repair import SearchBudget, repair

ABSENT = 0  # in the place of a generation: nothing has the name
DAMAGED = -1  # something has it that is no whole checkpoint of this key


class Candidate(NamedTuple):
    """A whole generation of a key, and the file that holds it."""

    generation: int
    name: str
    key: str
    blob: bytes
    mended: bool = False  # the file holds other bytes, which were repaired exactly

    def __repr__(self) -> str:
        return f"Candidate({self.key!r}, generation {self.generation}, {self.name!r})"  # never data


class Place(Enum):
    """Where the highest candidate belongs."""

    CURRENT = auto()
    PREVIOUS = auto()  # for a rollback that somebody decides


class Verdict(NamedTuple):
    place: Place
    candidate: Candidate


def candidate_in(name: str, blob: bytes, budget: SearchBudget) -> Candidate | None:
    """What the file of this name holds; None if that is no whole checkpoint and cannot be repaired exactly. TooNew."""
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
    """What is to be done for a key with these generations under its two names; None if all is in its place.

    The highest generation wins. Nothing takes the place of damaged bytes, and nothing is made where nothing is:
    the checkpoint was removed.
    """
    best = max(candidates, key=_generation, default=None)
    if best is None or current == ABSENT:
        return None
    if current == DAMAGED:
        return Verdict(Place.PREVIOUS, best) if best.generation > previous else None
    return Verdict(Place.CURRENT, best) if best.generation > current else None


def _generation(candidate: Candidate) -> int:
    return candidate.generation


def _candidate(name: str, blob: bytes) -> Candidate:
    header, _ = open_any(blob)
    return Candidate(header.generation, name, header.key, blob)
