"""The copies in a directory's quarantine: list them, put one back, delete some.

Changes need the directory's lock (owner.py) and follow the library's order: the new bytes are on the disk before a
name points to them, and what the name pointed to before is kept first.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from checkpointmanager._format.names import QUARANTINE, SUFFIX, TEMP

from ..findings import disk
from ..findings.examine import COPY_NAME, examine_path
from ..findings.finding import Finding, State

REPLACED = "replaced"  # the reason in the name of a copy that restore makes
_TIME = "%Y%m%dT%H%M%S%fZ"
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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
    match = COPY_NAME.fullmatch(name)
    if match is None or os.path.basename(folder) != QUARANTINE:
        return None
    try:
        status = os.lstat(path)
        time = datetime.strptime(match[2], _TIME).replace(tzinfo=UTC)
    except (OSError, ValueError):
        return None
    return Copy(path, match[1], time, match[3], status.st_size) if stat.S_ISREG(status.st_mode) else None


def present(copy: Copy) -> Finding | None:
    """The file that its key has now; None if there is none."""
    return examine_path(copy.target) if os.path.lexists(copy.target) else None


def restore(copy: Copy) -> str:
    """Put the copy's bytes in its key's place; the copy stays. Returns the path of the replaced file's copy, or "".

    The caller owns the directory. If it raises OSError, it has changed nothing under the key.
    """
    folder = disk.open_folder(copy.directory)
    temp = f"{TEMP}{secrets.token_hex(4)}-1"
    try:
        _write(folder, temp, disk.pieces(copy.path))
        kept = _keep_present(copy) if os.path.lexists(copy.target) else ""
        os.rename(temp, os.path.basename(copy.target), src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temp, dir_fd=folder)
        raise
    finally:
        os.close(folder)
    return kept


def is_needed(copy: Copy, others: list[Copy]) -> bool:
    """True for the last copy of a key whose checkpoint is damaged or gone: nothing else is left of it."""
    newest = max((one.time for one in others if one.key == copy.key), default=copy.time)
    if copy.time < newest:
        return False
    now = present(copy)
    return now is None or now.state not in (State.GOOD, State.TOO_NEW)


def delete(copy: Copy) -> None:
    os.unlink(copy.path)


def _keep_present(copy: Copy) -> str:
    """Give the file that is about to be replaced a second name, and make that durable first."""
    if not os.path.isfile(copy.target) or os.path.islink(copy.target):
        raise IsADirectoryError(21, "something other than a file has its name; move that away first")
    time = datetime.now(UTC)
    folder = os.path.dirname(copy.path)
    while os.path.lexists(kept := os.path.join(folder, f"{copy.key}.{time.strftime(_TIME)}.{REPLACED}.json")):
        time += timedelta(microseconds=1)
    os.link(copy.target, kept, follow_symlinks=False)
    descriptor = disk.open_folder(folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return kept


def _write(folder: int, name: str, pieces: Iterable[bytes]) -> None:
    descriptor = os.open(name, _CREATE, 0o600, dir_fd=folder)
    with open(descriptor, "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(descriptor)
