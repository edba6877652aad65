"""The names of one member of a transaction, changed when nothing can prevent any more that it happens."""

from __future__ import annotations

import errno
from contextlib import suppress

from .._format.names import PREVIOUS, SUFFIX
from .._format.record import Member, MemberKind
from .._store import Current
from .directory import Directory
from .removals import Removals

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def apply(directory: Directory, member: Member, current: Current, removed: Removals) -> None:
    """`current` is what stands under the key's name; what is taken away is `removed`."""
    key, name = member.key, member.key + SUFFIX
    if member.kind is MemberKind.REMOVE:
        with suppress(OSError):  # if that fails it is an orphan, which nobody reads
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
        if error.errno not in (errno.EISDIR, errno.ENOTEMPTY):  # ENOTEMPTY is what pyfakefs says
            raise
        removed.take(name, key)  # a folder, which goes to quarantine
        directory.rename(member.file, name)


def _keep_previous(directory: Directory, key: str, current: Current) -> None:
    temp = directory.new_temp()
    gone = False
    try:
        directory.link_or_copy(key + SUFFIX, temp)
        directory.rename(temp, PREVIOUS + key)
        # A killed writer may have left both names on one file. Then rename does nothing, and temp must go.
        gone = current is Current.OURS
    except OSError as error:
        # Removed by hand, a folder there, no room for a copy: no reason not to finish what is committed.
        if error.errno not in (errno.ENOENT, errno.EISDIR, *NO_ROOM):
            raise
    finally:
        if not gone:
            directory.discard(temp)
