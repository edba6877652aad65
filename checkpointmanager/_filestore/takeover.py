"""What an owner does before it serves anything: it finishes the work of owners that have died.

sweep    temp files: they belong to dead writers, because this process has the lock
copy     the records of the journal into a new one, synced, under its name: they may have been in memory only, and
         a half-applied transaction whose record is lost would stay half for ever
names    of the keys in the journal: the highest generation of journal and files becomes key.json, the second
         highest the previous generation
lock     the journal: from now on readers trust the names
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence

from .._errors import CheckpointTooNew, DirectoryUnusable
from .._events import Event, EventKind
from .._interruption import ignored
from ..format import (
    JOURNAL,
    MAX_JOURNAL_BYTES,
    TEMP,
    Change,
    Damaged,
    JournalContent,
    Reason,
    TooNew,
    current_name,
    previous_name,
    read_journal,
    truth,
)
from .directory import Directory
from .names import take_away
from .reading import read_change, read_file

EARLIER = (".spares", ".transaction")  # names of a version that was never released


def sweep(directory: Directory, names: Iterable[str]) -> int:
    """Remove temp files; returns how many there were."""
    temps = [name for name in names if name.startswith(TEMP)]
    for temp in temps:
        directory.discard(temp)
    return len(temps)


def refuse_earlier(directory: Directory, names: Sequence[str]) -> None:
    """A directory that an unreleased version left in the middle of its work is not ours to finish."""
    for name in EARLIER:
        if name in names:
            why = OSError(None, f"{name} was left by an earlier version; open and close it once with that version")
            raise DirectoryUnusable(directory.path, why)


def inherited_journal(directory: Directory) -> JournalContent:
    """What the journal holds. Raises DirectoryUnusable if it cannot be read: then nothing is known about any key."""
    path = os.path.join(directory.path, JOURNAL)
    try:
        return read_journal(read_file(directory, JOURNAL, MAX_JOURNAL_BYTES))
    except TooNew as too_new:
        raise CheckpointTooNew("", path, str(too_new)) from None
    except Damaged as damage:
        raise DirectoryUnusable(path, OSError(damage.errno, damage.detail)) from damage


def report_journal(content: JournalContent, path: str, emit: Callable[[Event], object]) -> None:
    """What an owner found in the journal of its directory."""
    if keys := len(content.by_key()):
        detail = f"an earlier process had committed changes of {keys} keys, which are in place now"
        emit(Event(EventKind.JOURNAL_REPLAYED, path, detail))
    if content.damaged:
        detail = f"{content.damaged} records are damaged; if the power failed as well, their changes are lost"
        emit(Event(EventKind.DAMAGE, os.path.join(path, JOURNAL), detail, reason=Reason.CHECKSUM_MISMATCH))


def put_names_right(directory: Directory, key: str, changes: Sequence[Change], max_bytes: int) -> Change:
    """Give a key of the journal the files that count, without a sync; returns the change that counts.

    Raises OSError if its files cannot be read or replaced: nothing may be concluded from what was not read.
    """
    try:
        current = read_change(directory, current_name(key), key, max_bytes)
        before = read_change(directory, previous_name(key), key, max_bytes)
    except Damaged as damage:
        number = errno.EISDIR if damage.reason is Reason.NOT_A_FILE else damage.errno
        raise OSError(number, damage.detail) from damage
    newest, previous = truth(changes, current, before)
    if newest is None:
        take_away(directory, key)
        return Change(key, max(change.generation for change in changes), None)
    if previous is None:
        directory.discard(previous_name(key))
    elif previous != before:
        with ignored(OSError):  # costs only the previous generation, as in every update
            _set_previous(directory, previous, is_current=previous == current)
    if newest != current:
        assert newest.blob is not None
        directory.rename(directory.write_temp(newest.blob), current_name(key))
    return newest


def _set_previous(directory: Directory, previous: Change, *, is_current: bool) -> None:
    if is_current:
        temp = directory.new_temp()
        directory.link_or_copy(current_name(previous.key), temp)
    else:
        assert previous.blob is not None
        temp = directory.write_temp(previous.blob)
    try:
        directory.rename(temp, previous_name(previous.key))
    except OSError:
        directory.discard(temp)
        raise
