"""What a reader without the lock sees after a crash, before an owner has moved the newest generations into place.

It applies the rule of recovery.py in memory; the record of a transaction comes after that (unfinished.py). While an
owner is alive, the names are right (marker.py).
"""

from __future__ import annotations

from .._errors import DirectoryUnusable
from .._format.names import PREVIOUS, SPARES, SUFFIX
from .._format.newest import Candidate, Place, decide, highest
from .directory import Directory
from .marker import has_owner
from .reading import read_file
from .recovery import find_waiting, generation_of


class Onlooker:
    """Reads the spares once, and again when `.spares` has been replaced."""

    def __init__(self, directory: Directory, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        # Which `.spares` was read, and the highest generation of each key in it.
        self._seen: tuple[object, dict[str, Candidate]] = (None, {})

    def read(self, key: str, *, previous: bool) -> bytes | None:
        """The bytes that count for this name but are under another; None if the name itself has them."""
        try:
            return self._read(key, previous=previous)
        except FileNotFoundError:  # an owner is removing the file right now
            raise
        except OSError as error:
            raise DirectoryUnusable(self._directory.path, error) from error

    def _read(self, key: str, *, previous: bool) -> bytes | None:
        candidate = self._highest().get(key)
        if candidate is None:
            return None
        current = generation_of(self._directory, key + SUFFIX, key, self._max_bytes)
        before = generation_of(self._directory, PREVIOUS + key, key, self._max_bytes)
        verdict = decide(current, before, [candidate])
        if verdict is None:
            return None
        if verdict.place is Place.CURRENT and previous:
            return read_file(self._directory, key + SUFFIX, self._max_bytes)
        return candidate.blob if previous == (verdict.place is Place.PREVIOUS) else None

    def _highest(self) -> dict[str, Candidate]:
        try:
            status = self._directory.stat(SPARES)
        except FileNotFoundError:
            return {}
        identity = (status.st_dev, status.st_ino, status.st_ctime_ns)
        seen, highest = self._seen
        if seen != identity:
            highest = {} if has_owner(self._directory) else self._find_highest()
            self._seen = (identity, highest)
        return highest

    def _find_highest(self) -> dict[str, Candidate]:
        waiting = find_waiting(self._directory, self._directory.names(), self._max_bytes)
        return {key: best for key, found in waiting.candidates.items() if (best := highest(found))}
