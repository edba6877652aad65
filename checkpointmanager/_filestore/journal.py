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
from collections.abc import Callable, Sequence
from contextlib import suppress

from .._interruption import pass_on_interruption
from .._store import Replaces
from ..format import (
    BLOCK_BYTES,
    JOURNAL,
    Change,
    Damaged,
    JournalContent,
    current_name,
    encode_key,
    padded,
    previous_name,
    reason_of,
    seal_record,
    truth,
)
from .directory import Directory
from .groupcommit import GROUP_BYTES, Group, GroupCommit, Inherited, Submission, waiting_changes
from .journalfile import JournalFile
from .names import Outcome, Staged, discard_temps, put_in_place, take_away
from .plain import PlainChanges
from .reading import read_file
from .settling import find_blocked, rewrite_files, sync_files
from .system import NO_ROOM
from .takeover import put_names_right, read_change

FIRST_BYTES = 256 << 10  # the size of the first journal; each next one is twice as large
LAST_BYTES = 4 << 20
DIRTY_KEYS = 256  # changed since the last settle; bounds how long a settle takes


class Journal:
    """All changes of one directory by one owner."""

    def __init__(
        self,
        directory: Directory,
        max_bytes: int,
        *,
        report: Callable[[str], object],  # gets a text if committed changes cannot be put in place or synced
        on_settle: Callable[[float], object],  # gets the seconds that writers had to wait
        size: int | None = None,
    ) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._report = report
        self._on_settle = on_settle
        self._numbers = itertools.count(1)
        self._groups = GroupCommit(self._write)
        # Guarded by the turn of the groups:
        self._file: JournalFile | None = None
        self._usable = False  # the file may be appended to
        self._exists = False  # there may be a file of this name
        self._size = FIRST_BYTES if size is None else size  # of the next file
        self._inherited: dict[str, Change] = {}  # by key: what was committed before the first group of `_written`
        self._written: list[tuple[Group, Sequence[Change]]] = []  # since the last settle; not all may be committed
        self._highest: dict[str, int] = {}  # by key: the highest generation that the journal may bring back
        self._distrust = False
        self._doubt: Group | None = None  # the last group, as long as it is not known to be committed

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
            try:
                self._inherited[key] = put_names_right(self._directory, key, changes, self._max_bytes)
            except OSError as error:
                pass_on_interruption(error)
                self._groups.owe(key, changes)
                self._report_unplaced(key, error)
        self._file.lock()
        self._exists = self._usable = True  # last: a close after a failure must not end what was not taken over

    def commit(self, staged: Sequence[Staged], outcome: Outcome, *, together: bool) -> None:
        """Commit and apply. Returns when the changes are durable, also if they cannot be put in place yet."""
        for submission in self._submissions(staged, together=together):
            try:
                group = self._groups.submit(submission)
            except BaseException:
                if self._groups.withdraw(submission):
                    self._discard(submission)
                raise
            outcome.seconds = max(outcome.seconds, group.seconds)
            if group.committed:
                self._apply(submission)
                continue
            error = group.error or OSError(errno.EINTR, "the thread that wrote the journal was interrupted")
            outcome.errors.update(dict.fromkeys(submission.keys, (error, group.begun)))
            self._groups.forget(submission)
            self._discard(submission)

    def finish(self, keys: Sequence[str]) -> None:
        """Finish what earlier calls left of these keys. After a doubt, settle: then it is over. Raises OSError."""
        for key in keys:
            if submission := self._groups.owed(key):
                self._finish(key, submission)
        doubt = self._doubt
        if doubt and not doubt.is_under_way():  # a sync that is under way is no reason to wait
            with self._groups.turn:
                if self._doubt:
                    self._settle_files()
                    self._renew()

    def waiting(self, key: str) -> Change | None:
        """The change of a key that is committed but has not got its name yet.

        Raises OSError if that depends on a file that cannot be read.
        """
        submission = self._groups.owed(key)
        found = submission.waiting.get(key) if submission and submission.group.committed else None
        if isinstance(found, Inherited):
            names = (current_name(key), previous_name(key))
            files = [read_change(self._directory, name, key, self._max_bytes) for name in names]
            return truth(found.changes, *files)[0] or Change(key, 0, None)
        return found.change if found else None

    def keys_waiting(self) -> list[str]:
        """Those of waiting()."""
        return [change.key for change in waiting_changes(self._groups.owed_and_committed())]

    def highest_generation(self, key: str) -> int:
        return self._highest.get(key, 0)

    def close(self) -> None:
        """Settle, and leave plain files without a journal. If that fails the journal stays, for the next owner."""
        with self._groups.turn:
            try:
                if self._exists:
                    self._settle_files()
                    if not self._groups.owed_and_committed():
                        self._end()
            except OSError as error:
                pass_on_interruption(error)
                self._report(f"{reason_of(error)}: the files could not be synced, so the journal stays")
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Close the descriptor and nothing else, as a forked child must."""
        if self._file:
            self._file.close()

    # Commit

    def _submissions(self, staged: Sequence[Staged], *, together: bool) -> list[Submission]:
        """One for a transaction, which is one record; as many as its size needs for a batch."""
        if together and len(staged) > 1:
            line = seal_record([each.change for each in staged], next(self._numbers))
            return [Submission({each.change.key: each for each in staged}, line, together=True)]
        found: list[Submission] = []
        waiting: dict[str, Staged] = {}
        lines = b""
        for each in staged:
            line = seal_record((each.change,), next(self._numbers))
            if waiting and len(lines) + len(line) > GROUP_BYTES:
                found.append(Submission(waiting, lines))
                waiting, lines = {}, b""
            waiting[each.change.key] = each
            lines += line
        return [*found, Submission(waiting, lines)] if waiting else found

    def _write(self, group: Group, members: Sequence[Submission]) -> None:
        """Commit a group. An interrupt or a failure after `begun` leaves it in doubt."""
        changes = waiting_changes(members)
        lines = padded(b"".join(member.lines for member in members))
        if self._doubt or not self._has_room(len(lines)):
            self._settle_files()
            self._renew(group, lines, changes)
        if self._file is None:
            self._write_plainly(group, members)
            return
        if not group.begun:
            self._begin(group, changes)
            group.seconds = self._file.append(lines)
        group.committed = True
        self._doubt = None

    def _has_room(self, size: int) -> bool:
        file = self._file
        return self._usable and file is not None and file.has_room(size) and len(self._highest) < DIRTY_KEYS

    def _begin(self, group: Group, changes: Sequence[Change]) -> None:
        """From now on the group is in doubt, until one assignment makes it committed."""
        self._doubt = group
        group.begun = True
        for change in changes:
            self._highest[change.key] = change.generation
        self._written.append((group, changes))

    def _committed(self) -> dict[str, Change]:
        """The last committed change of each key since the last settle."""
        found = dict(self._inherited)
        for group, changes in self._written:
            if group.committed:
                found.update((change.key, change) for change in changes)
        return found

    def _write_plainly(self, group: Group, members: Sequence[Submission]) -> None:
        """There is no room for a journal. Single changes need none."""
        if any(member.together for member in members):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        staged = [each for member in members for each in member.waiting.values() if isinstance(each, Staged)]
        outcome = Outcome()
        group.begun = True
        PlainChanges(self._directory, durable=True).commit(staged, outcome)
        for error, _ in outcome.errors.values():
            raise error
        group.committed = True
        for member in members:
            member.waiting.clear()
            self._groups.forget(member)

    # Apply

    def _apply(self, submission: Submission) -> None:
        """Give committed changes their names. What fails stays owed; the change is durable all the same."""
        placed: list[str] = []
        with submission.placing:
            again, submission.was_tried = submission.was_tried, True
            for key, waiting in list(submission.waiting.items()):
                try:
                    self._place(key, waiting, again=again)
                except OSError as error:
                    pass_on_interruption(error)
                    self._report_unplaced(key, error)
                    continue
                del submission.waiting[key]
                placed.append(key)
        self._groups.forget(submission, placed)

    def _place(self, key: str, waiting: Staged | Inherited, *, again: bool) -> None:
        if isinstance(waiting, Inherited):
            self._inherited[key] = put_names_right(self._directory, key, waiting.changes, self._max_bytes)
        elif waiting.change.blob is None:
            take_away(self._directory, key)
        elif again:
            self._place_again(key, waiting, waiting.change.blob)
        else:
            put_in_place(self._directory, key, waiting.temp, waiting.replaces)

    def _place_again(self, key: str, staged: Staged, blob: bytes) -> None:
        """Go on where an interrupted or failed attempt stopped, as the names show."""
        temp, replaces = staged.temp, staged.replaces
        if not self._directory.exists(temp):
            with suppress(FileNotFoundError, Damaged):
                if read_file(self._directory, current_name(key), len(blob)) == blob:
                    return
            temp = self._directory.write_temp(blob)
        if replaces is Replaces.WHOLE and self._directory.is_same(current_name(key), previous_name(key)):
            replaces = Replaces.DAMAGED  # the previous generation is in place already
        put_in_place(self._directory, key, temp, replaces)

    def _finish(self, key: str, submission: Submission) -> None:
        """The caller has the key, so the thread that submitted this has left it."""
        with submission.group.over:
            pass
        if not submission.group.committed:
            self._groups.forget(submission)
            self._discard(submission)
            return
        with self._groups.turn:  # guards _inherited
            self._apply(submission)
        if key in submission.waiting:
            raise OSError(errno.EBUSY, "an earlier change is committed, and something is in its place; move it away")

    def _discard(self, submission: Submission) -> None:
        discard_temps(self._directory, [each for each in submission.waiting.values() if isinstance(each, Staged)])

    def _report_unplaced(self, key: str, error: OSError) -> None:
        self._report(f"{encode_key(key)}: {reason_of(error)}: its change is safe in the journal, but not in place yet")

    # Settle

    def _settle_files(self) -> None:
        """Steps 1 to 3. If a sync fails the journal stays, and the next settle distrusts."""
        started = time.perf_counter()
        self._distrust |= self._doubt is not None
        for submission in self._groups.owed_and_committed():
            self._apply(submission)
        committed = self._committed()
        waiting = {change.key for change in waiting_changes(self._groups.owed_and_committed())}
        todo = {key: change for key, change in committed.items() if key not in waiting}
        for change in find_blocked(self._directory, todo.values()):
            self._groups.owe(change.key, (todo.pop(change.key),))
        if todo:
            distrusted, self._distrust = self._distrust, True
            (rewrite_files if distrusted else sync_files)(self._directory, todo.values())
            self._directory.sync()
        self._inherited = {key: change for key, change in committed.items() if key not in todo}
        self._written = []
        self._distrust = False
        self._on_settle(time.perf_counter() - started)

    def _renew(self, group: Group | None = None, lines: bytes = b"", changes: Sequence[Change] = ()) -> None:
        """Step 4. A group that would not fit is committed by becoming part of the new journal."""
        kept = waiting_changes(self._groups.owed_and_committed())
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
            self._begin(group, changes)  # after the settle, which clears what was written before
        self._exists = True
        file.lock()
        file.put_in_place()
        self.abandon()
        self._file, self._usable = file, True
        self._size = min(2 * self._size, max(LAST_BYTES, self._size))
        self._highest = {change.key: change.generation for change in (*kept, *(changes if is_large else ()))}
        self._doubt = group if is_large else None  # until it is committed

    def _do_without(self) -> None:
        """As in _end, an empty file takes the place of the journal before it goes; most full disks have room for it."""
        if self._exists:
            try:
                self._directory.rename(self._directory.write_temp(b""), JOURNAL)
                self._directory.sync()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
            with suppress(FileNotFoundError):
                self._directory.unlink(JOURNAL)
            self._directory.sync()
        self.abandon()
        self._file, self._exists = None, False
        self._doubt = None
        self._highest.clear()

    def _end(self) -> None:
        """An empty journal takes the place of the old one before it goes: the old one must never come back."""
        if self._exists:
            file = JournalFile.write(self._directory, b"", 0)
            file.put_in_place()
            file.close()
            self._directory.unlink(JOURNAL)
            self._exists = False
