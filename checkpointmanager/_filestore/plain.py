"""The plain way to change files: sync the new one, change the names, sync the directory.

For processes that share a directory, for durability "atomic", and for a disk without room for a journal.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from .._interruption import pass_on_interruption
from ..format import LOCK
from .directory import Directory
from .names import Errors, Staged, discard_temps, put_in_place, take_away
from .settling import SYNC_THREADS
from .sidebyside import side_by_side


class PlainChanges:
    """Changes of one directory without a journal. With `durable` False the directory is not synced."""

    def __init__(self, directory: Directory, *, durable: bool) -> None:
        self._directory = directory
        self._durable = durable
        self.has_failed = False  # a sync of the directory, or an interrupt before it: names may not be durable

    def commit(self, staged: Sequence[Staged], errors: Errors) -> float:
        """Each change is atomic, all together are not. Returns how many seconds it took."""
        started = time.perf_counter()
        self._sync_files(staged, errors)
        was_failed, self.has_failed = self.has_failed, True
        placed = self._place([each for each in staged if each.change.key not in errors], errors)
        if placed and self._durable:
            try:
                sync_names(self._directory)
            except OSError as error:
                pass_on_interruption(error)
                errors.update(dict.fromkeys(placed, (error, True)))
                was_failed = True
        self.has_failed = was_failed
        return time.perf_counter() - started

    def _sync_files(self, staged: Sequence[Staged], errors: Errors) -> None:
        def sync(each: Staged) -> None:
            try:
                if each.temp:
                    self._directory.sync_file(each.temp)
            except OSError as error:
                pass_on_interruption(error)
                self._directory.discard(each.temp)
                errors[each.change.key] = (error, False)

        try:
            side_by_side(sync, staged, SYNC_THREADS)
        except BaseException:
            discard_temps(self._directory, staged)
            raise

    def _place(self, staged: Sequence[Staged], errors: Errors) -> list[str]:
        placed: list[str] = []
        for change, replaces, temp in staged:
            try:
                if change.blob is None:
                    take_away(self._directory, change.key)
                else:
                    put_in_place(self._directory, change.key, temp, replaces)
            except OSError as error:
                pass_on_interruption(error)
                self._directory.discard(temp)
                errors[change.key] = (error, False)
            else:
                placed.append(change.key)
        return placed


def sync_names(directory: Directory) -> None:
    """Sync the directory where nothing else follows: an xfs that has shut down reports it only for a file."""
    directory.sync()
    directory.sync_file(LOCK)
