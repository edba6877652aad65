"""The copies in a directory's quarantine."""

from __future__ import annotations

import errno
import os
import stat
from datetime import UTC, datetime
from typing import NamedTuple

from checkpointmanager.format import QUARANTINE, SUFFIX, encode_key, parse_copy

from . import disk
from .examine import examine_path
from .finding import Finding, State

_TIME = "%Y%m%dT%H%M%S%fZ"


class Copy(NamedTuple):
    """One copy: its key, and when and why it was kept."""

    path: str
    key: str
    time: datetime
    reason: str
    size: int

    @property
    def directory(self) -> str:
        """The directory of checkpoints that the copy came from."""
        return os.path.dirname(os.path.dirname(self.path)) or "."

    @property
    def target(self) -> str:
        """Where the checkpoint of its key belongs."""
        return os.path.join(self.directory, self.key + SUFFIX)


def copies_in(directory: str) -> list[Copy]:
    """The copies, oldest first; empty if nothing was ever kept. Raises OSError if the directory cannot be read."""
    folder = os.path.join(directory, QUARANTINE)
    os.close(disk.open_folder(directory))
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = (copy_at(os.path.join(folder, name)) for name in names)
    return sorted((copy for copy in found if copy), key=lambda copy: (copy.time, copy.key))


def copy_at(path: str) -> Copy | None:
    """The copy at a path; None if there is none, or if the library does not make such names."""
    folder, name = os.path.split(path)
    found = parse_copy(name)
    if found is None or os.path.basename(folder) != QUARANTINE:
        return None
    try:
        status = os.lstat(path)
        time = datetime.strptime(found.time, _TIME).replace(tzinfo=UTC)
    except (OSError, ValueError):
        return None
    key = encode_key(found.key)
    return Copy(path, key, time, found.reason, status.st_size) if stat.S_ISREG(status.st_mode) else None


def present(copy: Copy) -> Finding | None:
    """The file that its key has now; None if there is none."""
    found = examine_path(copy.target)
    return None if found.errno == errno.ENOENT else found


def is_needed(copy: Copy, others: list[Copy]) -> bool:
    """True for the last copy of a key whose checkpoint is damaged or gone: nothing else is left of it."""
    newest = max((one.time for one in others if one.key == copy.key), default=copy.time)
    if copy.time < newest:
        return False
    now = present(copy)
    return now is None or now.state not in (State.GOOD, State.TOO_NEW)
