"""What a process without the lock sees: the names while an owner is alive, the journal and the names after a crash.

An owner that is alive and ready holds a lock on the journal, which dies with it. While nobody holds that lock, the rule
for the journal (truth) decides in memory what the next owner will put in place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from .._errors import CheckpointTooNew, DirectoryUnusable
from .._interruption import pass_on_interruption
from ..format import JOURNAL, Change, truth
from .directory import Directory
from .reading import read_changes
from .system import is_locked
from .takeover import inherited_journal

Waiting = Mapping[str, Sequence[Change]]


class Onlooker:
    """Reads the journal once, and again when another one has taken its place."""

    def __init__(self, directory: Directory, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._seen: tuple[object, Waiting] = (None, {})  # which journal was read, and its changes by key

    def change(self, key: str, *, previous: bool = False) -> Change | None:
        """What counts instead of what is under a name, without a blob if the checkpoint is gone. None: the name counts.

        Raises Damaged if that depends on a file that cannot be read.
        """
        changes = self._waiting().get(key)
        if not changes:
            return None
        return truth(changes, *read_changes(self._directory, key, self._max_bytes))[previous] or Change(key, 0, None)

    def keys(self) -> Iterable[str]:
        """Those that a journal without an owner names."""
        return self._waiting().keys()

    def _waiting(self) -> Waiting:
        """The changes of each key in a journal without an owner. Raises DirectoryUnusable if it cannot be read."""
        try:
            status = self._directory.stat(JOURNAL)
        except FileNotFoundError:
            return {}
        except OSError as error:
            pass_on_interruption(error)
            raise DirectoryUnusable(self._directory.path, error) from error
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if self._has_owner():
            return {}
        if self._seen[0] != identity:
            try:
                self._seen = (identity, inherited_journal(self._directory).by_key())
            except FileNotFoundError:  # its owner has just closed
                return {}
            except CheckpointTooNew as too_new:  # what the names say proves nothing
                raise DirectoryUnusable(too_new.path, OSError(None, too_new.detail)) from too_new
        return self._seen[1]

    def _has_owner(self) -> bool:
        try:
            return self._directory.use(JOURNAL, is_locked)
        except FileNotFoundError:
            return False
        except OSError as error:
            pass_on_interruption(error)
            raise DirectoryUnusable(os.path.join(self._directory.path, JOURNAL), error) from error
