"""Spares: files that updates are written over, and that may hold the newest generation after a crash.

As long as an owner lives, names are right and nobody needs to look. FORMAT.md has the rule.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from checkpointmanager._format.envelope import open_sealed
from checkpointmanager._format.names import PREVIOUS, SUFFIX
from checkpointmanager._format.newest import ABSENT, DAMAGED, Candidate, Place, candidate_in, decide
from checkpointmanager._format.reason import Damaged, TooNew, reason_of
from checkpointmanager._format.repair import SearchBudget

from . import disk, words


def notes_on(spares: Sequence[str], folder: int, path: str) -> Iterator[str]:
    """Sentences about the spares that a dead owner left in this folder; nothing if there are none."""
    candidates: dict[str, list[Candidate]] = {}
    budget = SearchBudget()
    for name in spares:
        try:
            candidate = candidate_in(name, disk.read_whole(name, folder), budget)
        except FileNotFoundError:
            continue
        except (OSError, disk.NotAFile) as error:
            why = reason_of(error) if isinstance(error, OSError) else str(error)
            yield f"{words.shown(os.path.join(path, name))} could not be read ({why}); it may hold a newer generation."
            continue
        except TooNew as too_new:
            yield f"{words.shown(os.path.join(path, name))} is a newer release's: {too_new}."
            continue
        if candidate:
            candidates.setdefault(candidate.key, []).append(candidate)
    if spares:
        yield f"{len(spares)} spares are left of an owner that did not close, such as {spares[0]}"
    for key, found in sorted(candidates.items()):
        current, previous = (_generation(name, key, folder) for name in (key + SUFFIX, PREVIOUS + key))
        if verdict := decide(current, previous, found):
            yield _told(os.path.join(path, key + SUFFIX), verdict.place, verdict.candidate)


def _told(path: str, place: Place, candidate: Candidate) -> str:
    waiting = f"{words.shown(path)}: a newer generation is waiting, {candidate.generation} in {candidate.name}"
    if place is Place.CURRENT:
        return f"{waiting}; readers of the library see it already"
    return f"{waiting}; as the file is damaged, it will be the previous generation"


def _generation(name: str, key: str, folder: int) -> int:
    try:
        header, _ = open_sealed(disk.read_whole(name, folder), key)
    except FileNotFoundError:
        return ABSENT
    except (OSError, disk.NotAFile, Damaged, TooNew):
        return DAMAGED
    return header.generation
