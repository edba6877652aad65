"""A journal that waits for the next owner: what that owner will make of the files.

While an owner is alive it holds the journal locked, and the names are right. After a crash the files of the keys in the
journal may be older, torn or missing. Then every command reads through this room, which applies the library's own rule
in memory. It writes nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from datetime import datetime

from checkpointmanager.format import (
    JOURNAL,
    LOCK,
    MAX_JOURNAL_BYTES,
    PREVIOUS,
    SUFFIX,
    Change,
    JournalContent,
    TooNew,
    change_in,
    current_name,
    describe_error,
    encode_key,
    previous_name,
    read_journal,
    truth,
)

from ..screens import phrases
from . import disk

_TRIES = 100  # an owner that settles replaces its journal


_seen: dict[tuple[object, ...], Waiting] = {}  # the journal read last: a command may ask for each of its keys


class Waiting:
    """The changes in a journal without an owner, by the names of their keys."""

    def __init__(self, directory: str, status: os.stat_result, blob: bytes) -> None:
        content = read_journal(blob)
        self.directory = directory
        self.status = status
        self.since: datetime | None = content.since
        self.damaged = _damaged_records(content, blob)
        self.changes = sum(len(record.changes) for record in content.records)
        self._by_name = {encode_key(key): changes for key, changes in content.by_key().items()}

    @property
    def is_ours(self) -> bool:
        """False for a file that another program has given this name, as ext3 does in the root of a disk."""
        return bool(self.since or self.changes) or os.path.lexists(os.path.join(self.directory, LOCK))

    @property
    def names(self) -> Sequence[str]:
        """The names of the keys that it changes, sorted."""
        return sorted(self._by_name)

    def __str__(self) -> str:
        """How many changes of which keys, and since when."""
        since = f", since {phrases.moment(self.since)}" if self.since else ""
        of = f" of {phrases.count(len(self.names), 'key')} ({phrases.some(self.names)})" if self.names else ""
        return f"{phrases.count(self.changes, 'change')}{of}{since}"

    def content_of(self, name: str) -> bytes | None:
        """What the next owner will have under a file's name; None if that is what the file holds now.

        Raises FileNotFoundError if there will be no such file, and OSError if the key's files cannot be read.
        """
        is_previous = name.startswith(PREVIOUS)
        encoded = name.removeprefix(PREVIOUS) if is_previous else name.removesuffix(SUFFIX)
        changes = self._by_name.get(encoded)
        if not changes or name not in (PREVIOUS + encoded, encoded + SUFFIX):
            return None
        key = changes[0].key
        files = [self._in_file(current_name(key), key), self._in_file(previous_name(key), key)]
        counts = truth(changes, *files)[is_previous]
        if counts is None or counts.blob is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return None if counts == files[is_previous] else counts.blob

    def _in_file(self, name: str, key: str) -> Change | None:
        """What a file holds; None if it is absent or not whole, which is usual after a power loss."""
        path = os.path.join(self.directory, name)
        try:
            return change_in(disk.look(path).blob, key, is_previous=name.startswith(PREVIOUS))
        except (FileNotFoundError, disk.NotAFile, disk.TooLarge):
            return None


def waiting_in(directory: str) -> Waiting | None:
    """The journal that waits in a directory; None if there is none, or if its owner is alive.

    Raises OSError if it cannot be read: then nothing is known about any key.
    """
    try:
        for _ in range(_TRIES):
            descriptor = os.open(os.path.join(directory, JOURNAL), disk.FILE)
            try:
                if _is_locked(descriptor):
                    return None
                status = os.fstat(descriptor)
                if os.path.samestat(status, os.stat(os.path.join(directory, JOURNAL), follow_symlinks=False)):
                    found = _read(directory, descriptor, status)
                    return found if found.is_ours else None
            finally:
                os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unknown(error.errno, describe_error(error)) from error
    return None  # replaced again and again, so its owner is alive


def _read(directory: str, descriptor: int, status: os.stat_result) -> Waiting:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"{disk.what_is(status.st_mode)} has its name")
    if status.st_size > MAX_JOURNAL_BYTES:
        raise OSError(errno.EFBIG, f"{status.st_size:,} bytes, over the limit of {MAX_JOURNAL_BYTES:,}")
    identity = (directory, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if identity not in _seen:
        blob = disk.read_open(descriptor, status.st_size)
        try:
            found = Waiting(directory, status, blob)
        except TooNew as newer:
            raise OSError(errno.EPROTO, f"a newer program wrote it: {newer}") from newer
        _seen.clear()
        _seen[identity] = found
    return _seen[identity]


def _unknown(number: int | None, why: str) -> OSError:
    return OSError(number, f"the journal cannot be read ({why}), so nothing is known about any checkpoint here")


def _damaged_records(content: JournalContent, blob: bytes) -> int:
    """How many records are damaged, without what a power loss cut off behind the last whole one."""
    if not content.damaged or not content.records:
        return content.damaged if content.since is None else 0
    last = content.records[-1].line
    return read_journal(blob[: blob.rfind(last) + len(last)]).damaged


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False  # closing the descriptor unlocks it
