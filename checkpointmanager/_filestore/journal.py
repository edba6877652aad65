"""The write path of an exclusive owner: a change is durable when its record is in the journal and synced.

    stage        .tmp-N for every put: create, write, close     a full disk shows here, before anything is promised
    commit       append the record, fdatasync .journal          THE commit; one sync for all threads that wait
    apply        names.py                                       no sync: the journal has the change
    acknowledge

When the journal is full, or 256 keys have changed, or the owner closes, it settles:

    1  every committed change has its name; nobody appends
    2  fsync every changed key.json
    3  fsync the directory                                      from here on the files need no journal
    4  a new journal, synced, takes the place of the old one; fsync the directory

After a failed sync the next settle *distrusts* what lies there, and writes it anew from the committed bytes: the kernel
forgets what a failed sync has lost.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter

from .._events import Event, EventKind
from .._interruption import pass_on_interruption
from .._metricssink import MetricsSink
from ..format import BLOCK_BYTES, JOURNAL, Change, JournalContent, describe_error, padded, seal_record
from .directory import Directory
from .groupcommit import Group, GroupCommit, Submission, submissions
from .journalfile import JournalFile
from .names import Errors, Staged
from .owed import Owed, changes_of
from .plain import PlainChanges
from .settling import find_blocked, rewrite_files, sync_files
from .system import NO_ROOM

FIRST_BYTES = 256 << 10  # the size of the first journal; each next one is twice as large
LAST_BYTES = 4 << 20
DIRTY_KEYS = 256  # changed since the last settle; bounds how long a settle takes

_lines = attrgetter("lines")


class Journal:
    """All changes of one directory by one owner."""

    def __init__(
        self,
        directory: Directory,
        max_bytes: int,
        emit: Callable[[Event], object],
        metrics: MetricsSink | None,
        *,
        size: int | None = None,
    ) -> None:
        self._directory = directory
        self._report = report = partial(_report_unsettled, emit, directory.path)
        self._metrics = metrics
        self._numbers = itertools.count(1)
        self._groups = GroupCommit()
        self._owed = Owed(directory, max_bytes, report)
        # Guarded by the turn of the groups:
        self._file: JournalFile | None = None
        self._usable = False  # the file may be appended to
        self._exists = False  # there may be a file of this name
        self._size = FIRST_BYTES if size is None else size  # of the next file
        self._written: list[Group] = []  # since the last settle; not all may be committed
        self._highest: dict[str, int] = {}  # by key: the highest generation that the journal may bring back
        self._distrust = False
        self._doubt: Group | None = None  # the last group, as long as it is not known to be committed
        self._rewritten: dict[str, Change] = {}  # removals whose names are made again at the moment

    def inherit(self, content: JournalContent) -> None:
        """Take over the journal of an owner that has died, before anything is served. Raises OSError."""
        self._distrust = True
        lines = b"".join(record.line for record in content.records)
        try:
            self._file = JournalFile.write(self._directory, lines, len(lines) + self._size)
            self._file.put_in_place()
        except OSError as error:
            pass_on_interruption(error)
            if error.errno not in NO_ROOM:
                raise
            self._file = JournalFile.reopen(self._directory, content.end)
        for key, changes in content.by_key().items():
            self._highest[key] = max(change.generation for change in changes)
            self._owed.inherit(key, changes)
        self._file.lock()
        self._exists = self._usable = True  # last: a close after a failure must not end what was not taken over

    def commit(self, staged: Sequence[Staged], errors: Errors, *, together: bool) -> float:
        """Commit and apply; returns how long the sync took. The changes are durable then, also if not in place yet."""
        seconds = 0.0
        for submission in submissions(staged, self._numbers, together=together):
            try:
                self._owed.add(submission)
                group = self._groups.submit(submission, self._write)
            except BaseException:
                if self._groups.withdraw(submission):
                    self._owed.discard(submission)
                raise
            seconds = max(seconds, group.seconds)
            if group.committed:
                self._owed.place(submission)
                if group.failed:
                    keys = [each.change.key for each in submission.staged]
                    errors.update((key, group.failed[key]) for key in keys if key in group.failed)
                continue
            error = group.error or OSError(errno.EINTR, "the thread that wrote the journal was interrupted")
            errors.update((each.change.key, (error, group.begun)) for each in submission.staged)
            self._owed.discard(submission)
        return seconds

    def finish(self, keys: Sequence[str]) -> None:
        """Finish what earlier calls left of these keys. After a doubt, settle: then it is over. Raises OSError."""
        for key in keys:
            if submission := self._owed.by_key.get(key):
                self._finish(key, submission)
        doubt = self._doubt
        if doubt and not doubt.is_under_way():  # a sync that is under way is no reason to wait
            with self._groups.turn:
                if self._doubt:
                    self._settle_files()
                    self._renew()

    def change(self, key: str, *, previous: bool = False) -> Change | None:
        """What counts instead of what is under a name, without a blob if the checkpoint is gone. None: the name counts.

        Raises Damaged if that depends on a file that cannot be read.
        """
        return None if previous else self._owed.change(key) or self._rewritten.get(key)

    def keys(self) -> list[str]:
        """Those of change()."""
        return [*self._owed.keys(), *self._rewritten]

    def highest_generation(self, key: str) -> int:
        return self._highest.get(key, 0)

    def close(self) -> bool:
        """Settle, and leave plain files. False if that fails, and the journal stays for the next owner."""
        with self._groups.turn:
            try:
                if self._exists:
                    self._settle_files()
                    if not self._owed.committed():
                        self._end()
            except OSError as error:
                pass_on_interruption(error)
                self._report(f"{describe_error(error)}: the files could not be synced, so the journal stays")
            finally:
                self.abandon()
        return not self._exists

    def abandon(self) -> None:
        """Close the descriptor and nothing else, as a forked child must."""
        if self._file:
            self._file.close()

    # Commit

    def _write(self, group: Group) -> None:
        """Commit a group. An interrupt or a failure after `begun` leaves it in doubt."""
        lines = padded(b"".join(map(_lines, group.members)))
        has_room = self._usable and self._file and self._file.has_room(len(lines)) and len(self._highest) < DIRTY_KEYS
        if self._doubt or not has_room:
            self._settle_files()
            self._renew(group, lines)
        if self._file is None:
            self._write_plainly(group)
            return
        if not group.begun:
            self._begin(group)
            group.seconds = self._file.append(lines)
        group.committed = True
        self._doubt = None

    def _begin(self, group: Group) -> None:
        """From now on the group is in doubt, until one assignment makes it committed."""
        self._doubt = group
        group.begun = True
        for member in group.members:
            for change, _, _ in member.staged:
                self._highest[change.key] = change.generation
        self._written.append(group)

    def _write_plainly(self, group: Group) -> None:
        """There is no room for a journal. Single changes need none; a transaction does."""
        staged: list[Staged] = []
        group.begun = True
        for member in group.members:
            if member.together:
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                group.failed.update((each.change.key, (full, False)) for each in member.staged)
                self._owed.discard(member)
            else:
                staged.extend(member.staged)
        group.seconds = PlainChanges(self._directory, durable=True).commit(staged, group.failed)
        group.committed = True
        for member in group.members:
            self._owed.forget(member)

    def _finish(self, key: str, submission: Submission) -> None:
        """The caller has the key, so the thread that submitted this has left it."""
        with submission.group.over:
            pass
        if not submission.group.committed:
            self._owed.discard(submission)
            return
        with self._groups.turn:  # guards what was inherited
            self._owed.place(submission)
        if key in submission.waiting:
            raise OSError(errno.EBUSY, "an earlier change is committed, and something is in its place; move it away")

    # Settle

    def _settle_files(self) -> None:
        """Steps 1 to 3. If a sync fails the journal stays, and the next settle distrusts."""
        started = time.perf_counter()
        self._distrust |= self._doubt is not None
        for submission in self._owed.committed():
            self._owed.place(submission)
        committed = self._committed()
        owed = {*self._owed.keys()}
        todo = {key: change for key, change in committed.items() if key not in owed}
        for change in find_blocked(self._directory, todo.values()):
            self._owed.owe(change.key, (todo.pop(change.key),))
        if todo:
            distrusted, self._distrust = self._distrust, True
            self._make_durable(todo, distrusted=distrusted)
            self._directory.sync()
        self._owed.inherited = {key: change for key, change in committed.items() if key not in todo}
        self._written = []
        self._distrust = False
        if self._metrics:
            self._metrics.settled(self._directory.path, time.perf_counter() - started)

    def _make_durable(self, changes: Mapping[str, Change], *, distrusted: bool) -> None:
        if not distrusted:
            sync_files(self._directory, changes.values())
            return
        self._rewritten = {key: change for key, change in changes.items() if change.blob is None}
        try:
            rewrite_files(self._directory, changes.values())
        finally:
            self._rewritten = {}

    def _committed(self) -> dict[str, Change]:
        """The last committed change of each key since the last settle."""
        found = dict(self._owed.inherited)
        for group in self._written:
            if group.committed:
                found.update((each.change.key, each.change) for member in group.members for each in member.staged)
        return found

    def _renew(self, group: Group | None = None, lines: bytes = b"") -> None:
        """Step 4. A group that would not fit is committed by becoming part of the new journal."""
        kept = changes_of(self._owed.committed())
        carried = b"".join(seal_record((change,), next(self._numbers)) for change in kept)
        is_large = 2 * BLOCK_BYTES + len(carried) + len(lines) > self._size and bool(lines)
        self._usable = False
        try:
            file = JournalFile.write(self._directory, carried + lines if is_large else carried, self._size)
        except OSError as error:
            pass_on_interruption(error)
            if error.errno not in NO_ROOM or carried:
                raise
            self._do_without()
            return
        if is_large and group:
            self._begin(group)  # after the settle, which clears what was written before
        self._exists = True
        file.lock()
        file.put_in_place()
        self.abandon()
        self._file, self._usable = file, True
        self._size = min(2 * self._size, max(LAST_BYTES, self._size))
        new = [each.change for member in group.members for each in member.staged] if is_large and group else []
        self._highest = {change.key: change.generation for change in (*kept, *new)}
        self._doubt = group if is_large else None  # until it is committed

    def _do_without(self) -> None:
        """No room for a journal. Most full disks have room for the empty file."""
        try:
            self._end()
        except OSError as error:
            pass_on_interruption(error)
            if error.errno not in NO_ROOM:
                raise
            with suppress(FileNotFoundError):
                self._directory.unlink(JOURNAL)
            self._directory.sync()
            self._exists = False
        self.abandon()
        self._file = self._doubt = None
        self._highest.clear()

    def _end(self) -> None:
        """An empty file takes the place of the journal before it goes: the journal must never come back."""
        if self._exists:
            self._directory.rename(self._directory.write_temp(b"", synced=True), JOURNAL)
            self._directory.sync()
            self._directory.unlink(JOURNAL)
            self._exists = False


def _report_unsettled(emit: Callable[[Event], object], path: str, detail: str) -> None:
    emit(Event(EventKind.UNSETTLED, path, detail))
