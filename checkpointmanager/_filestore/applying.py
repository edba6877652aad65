"""Changes the names in a committed transaction: those of its members and that of its record."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import suppress

from .._format.names import PREVIOUS, SUFFIX
from .._format.record import Member, MemberKind
from .._store import Current
from .directory import Directory
from .removals import Removals
from .system import NO_ROOM


def apply(directory: Directory, member: Member, current: Current, removed: Removals) -> None:
    """Apply one member. `current` is what is under the key's name now; `removed` collects the names taken away."""
    key, name = member.key, member.key + SUFFIX
    if member.kind is MemberKind.REMOVE:
        if current is Current.ABSENT:
            _remove_anew(directory, PREVIOUS + key)
            _remove_anew(directory, name)
            return
        with suppress(OSError):  # if this fails, the file is an orphan, which is never read
            removed.take(PREVIOUS + key, key)
        removed.take(name, key)
        return
    if current is Current.ABSENT:
        removed.take(PREVIOUS + key, key)
    elif current is not Current.DAMAGED:
        _keep_previous(directory, key, current)
    try:
        directory.rename(member.file, name)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ENOTEMPTY):  # pyfakefs raises ENOTEMPTY
            raise
        removed.take(name, key)  # a folder, which goes to quarantine
        directory.rename(member.file, name)


def first_twin(directory: Directory, keys: Iterable[str]) -> str:
    """The first of these new keys that differs from another only in case, if the file system ignores case."""
    made: set[str] = set()
    for key in keys if directory.ignores_case else ():
        if key.lower() in made or directory.exists(key + SUFFIX):
            return key
        made.add(key.lower())
    return ""


def _remove_anew(directory: Directory, name: str) -> None:
    """Remove a name that seems to be gone: if a failed sync has lost its removal, only another change of it helps.

    The empty file is never read, because the record says that the key is gone.
    """
    try:
        directory.put(name)
        directory.unlink(name)
    except OSError as error:
        if error.errno not in (errno.EISDIR, *NO_ROOM):  # a folder in this place is never read
            raise


def _keep_previous(directory: Directory, key: str, current: Current) -> None:
    temp = directory.new_temp()
    gone = False
    try:
        directory.link_or_copy(key + SUFFIX, temp)
        directory.rename(temp, PREVIOUS + key)
        # A killed writer may have left both names on one file. Then the rename does nothing, and temp must go.
        gone = current is Current.OURS
    except OSError as error:
        # Removed by hand, a folder in its place, no room for a copy: the commit must be completed anyway.
        if error.errno not in (errno.ENOENT, errno.EISDIR, *NO_ROOM):
            raise
    finally:
        if not gone:
            directory.discard(temp)
