"""Takes names away in a way that can be undone until the removal is durable.

A second sync does not restore what a failed sync lost: the change itself has to be made again. An unlinked name cannot
be unlinked again, so a removal renames first:

    rename  key.json -> .tmp-N-removed-key          gone, for every reader at once
    rename  .previous-key -> .tmp-M-removed-key
    fsync   the directory                           now the removal is acknowledged
    unlink  .tmp-N-removed-key, .tmp-M-removed-key  need no sync: the next open sweeps what is left

If the sync fails, the names are put back. Readers find the old checkpoint again, never anything else, and a repeated
removal, even after a restart, makes the change again.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

from .._format.names import REMOVED
from .directory import Directory
from .quarantine import Quarantine


class _Taken(NamedTuple):
    name: str
    temp: str
    key: str


class Removals:
    """Names that are taken away are gone for good at the end of the with block, unless the block raises."""

    def __init__(self, directory: Directory, quarantine: Quarantine) -> None:
        self._directory = directory
        self._quarantine = quarantine
        self._taken: list[_Taken] = []

    def __enter__(self) -> Removals:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind:
            self.put_back()
        else:
            self._settle()

    def take(self, name: str, key: str) -> bool:
        """Take a name of this key away; False if the name does not exist."""
        temp = self._directory.new_temp(REMOVED + key)
        self._taken.append(_Taken(name, temp, key))  # first: an interrupt may come right after the rename
        try:
            is_there = self._rename(name, temp)
        except OSError:
            self._taken.pop()
            raise
        if not is_there:
            self._taken.pop()
        return is_there

    def put_back(self) -> None:
        """Undo everything. The last call on this object."""
        taken, self._taken = self._taken, []
        for name, temp, _ in taken:
            try:
                self._directory.rename(temp, name)
            except FileNotFoundError:
                continue  # interrupted before the name was taken
            except OSError:  # a double fault; the next removal of the name first puts it back
                self._directory.stuck[name] = temp

    def _rename(self, name: str, temp: str) -> bool:
        stuck = self._directory.stuck
        try:
            self._directory.rename(name, temp)
        except FileNotFoundError:
            if name not in stuck:
                return False
            self._directory.rename(stuck[name], name)
            del stuck[name]
            self._directory.rename(name, temp)
        if name in stuck:  # the current holder of the name is newer
            self._directory.discard(stuck.pop(name))
        return True

    def _settle(self) -> None:
        try:
            for _, temp, key in self._taken:
                if not self._directory.discard(temp):
                    with suppress(OSError):  # the next owner will move it
                        self._quarantine.move_folder(temp, key)
        except BaseException:  # an interrupt must not leave the other files behind
            for _, temp, _ in self._taken:
                self._directory.discard(temp)
            raise
