"""What an owner does before it serves anything: it finishes the work of owners that have died.

sweep    temp files: they belong to dead writers, because this process has the lock
copy     the records of the journal into a new one, synced, under its name: they may have been in memory only, and
         a half-applied transaction whose record is lost would stay half applied
names    of the keys in the journal: the highest generation of journal and files becomes key.json, the second
         highest the previous generation
lock     the journal: from now on readers trust the names
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from .._errors import CheckpointTooNew, DirectoryUnusable
from .._events import Event, EventKind
from .._interruption import pass_on_interruption
from ..format import JOURNAL, LOCK, MAX_JOURNAL_BYTES, TEMP, Damaged, JournalContent, Reason, TooNew, read_journal
from .directory import Directory
from .journal import Journal
from .plain import sync_names
from .reading import read_file
from .system import shortcoming

EARLIER = (".spares", ".transaction")  # names of a version that was never released

Emit = Callable[[Event], object]


def take_over(directory: Directory, journal: Journal, emit: Emit, *, keep: bool) -> None:
    """Finish what dead owners left, and make durable whatever they did. Raises DirectoryUnusable or CheckpointTooNew.

    With `keep` the owner goes on with the inherited journal.
    """
    names = directory.names()
    for name in EARLIER:
        if name in names:
            why = OSError(None, f"{name} was left by an earlier version; open and close it once with that version")
            raise DirectoryUnusable(directory.path, why)
    try:
        swept = _sweep(directory, names)
        if JOURNAL in names:
            finish_journal(directory, journal, emit, keep=keep)
        else:
            sync_names(directory)
        ignores_case = directory.is_same(LOCK, LOCK.upper())
    except DirectoryUnusable:
        raise
    except OSError as error:
        pass_on_interruption(error)
        raise DirectoryUnusable(directory.path, error) from error
    if swept:
        detail = f"removed {swept} unfinished files of an earlier process"
        emit(Event(EventKind.STALE_FILES, directory.path, detail))
    if found := shortcoming(directory.file_system, directory.device):
        emit(Event(found[0], directory.path, found[1]))
    if ignores_case:
        detail = "names that differ only in upper and lower case are one file here, so use no such keys"
        emit(Event(EventKind.CASE_INSENSITIVE_FILE_SYSTEM, directory.path, detail))


def finish_journal(directory: Directory, journal: Journal, emit: Emit, *, keep: bool) -> None:
    """Take over the journal of a dead owner, and settle and end it unless it is to be kept. Raises OSError."""
    content = inherited_journal(directory)
    _report(content, directory.path, emit)
    try:
        journal.inherit(content)
        if keep:
            return
        journal.close()
    except BaseException:
        journal.abandon()
        raise
    if directory.exists(JOURNAL):
        raise OSError(errno.EBUSY, "the journal of an earlier process could not be finished")


def inherited_journal(directory: Directory) -> JournalContent:
    """What the journal holds. Raises DirectoryUnusable if it cannot be read: then nothing is known about any key."""
    path = os.path.join(directory.path, JOURNAL)
    try:
        return read_journal(read_file(directory, JOURNAL, MAX_JOURNAL_BYTES))
    except TooNew as too_new:
        raise CheckpointTooNew("", path, str(too_new)) from None
    except Damaged as damage:
        raise DirectoryUnusable(path, OSError(damage.errno, damage.detail)) from damage


def _sweep(directory: Directory, names: Iterable[str]) -> int:
    """Remove temp files; returns how many there were."""
    temps = [name for name in names if name.startswith(TEMP)]
    for temp in temps:
        directory.discard(temp)
    return len(temps)


def _report(content: JournalContent, path: str, emit: Emit) -> None:
    if keys := len(content.by_key()):
        detail = f"an earlier process had committed changes of {keys} keys, which are in place now"
        emit(Event(EventKind.JOURNAL_REPLAYED, path, detail))
    if content.damaged:
        detail = f"{content.damaged} records are damaged; if the power failed as well, their changes are lost"
        emit(Event(EventKind.DAMAGE, os.path.join(path, JOURNAL), detail, reason=Reason.CHECKSUM_MISMATCH))
