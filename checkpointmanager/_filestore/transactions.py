"""Changes several checkpoints together or not at all, by means of a sealed record.

    stage    .tmp-N, .tmp-O ...            each new checkpoint in its own file: write, fsync, close
             .tmp-R                        the record, which names all these files: write, fsync, close
    fsync    the directory                 only if an earlier change of a name may not be durable
    rename   .tmp-R -> .transaction
    fsync    the directory                 the commit: from here on there is no way back
    apply    link, rename                  each old checkpoint becomes the previous one, as in commit.py
             rename .tmp-N -> key.json     each new checkpoint gets its name
             rename key.json -> .tmp-…     each removed checkpoint is taken away (removals.py)
    fsync    the directory
    unlink   .transaction                  acknowledged

The record gets its name only when all bytes are on the disk, so a record that exists is whole. It is removed only when
all its changes are durable. If anything fails after the commit, the record stays, and blocks its keys and every other
transaction until the whole transaction is made again, with new files and a new record in place of the old one: another
sync does not restore what a failed sync lost. An owner that opens the directory does the same.

If the commit itself fails, an empty file takes the record's place, and is removed when the directory is synced. Only if
that fails as well is the outcome in doubt. Then the empty file stays, so that the next owner makes the removal again.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import NamedTuple

from .._errors import CheckpointWriteFailed, TransactionFailed
from .._format.names import SUFFIX, TRANSACTION
from .._format.reason import Damaged, TooNew, reason_of
from .._format.record import MAX_MEMBERS, Member, MemberKind, Record, seal_record
from .._store import Current, Put
from .applying import apply, first_twin
from .directory import TWIN, Directory
from .newfiles import FileFailed, NewFiles
from .onlooker import Onlooker
from .quarantine import Quarantine
from .remaking import copied, made_ready
from .removals import Removals
from .system import NO_ROOM
from .unfinished import Standing, Unfinished


class _Last(NamedTuple):
    """The last record of the directory, and what must wait until it is certain that the record never comes back."""

    keys: frozenset[str] | None  # the keys that the record blocks; None if they are unknown
    files: tuple[str, ...]  # the files that the record may name
    error_before: OSError | None  # a sync of the directory that has failed since may have lost the record's removal
    is_open: bool = True  # the record may exist
    generations: Mapping[str, int] = {}  # of its members; they count until its removal is durable
    gone_since: int = 0  # a sync of the directory with a higher number makes the removal durable

    def spares(self, keys: Sequence[str]) -> bool:
        """True if the record blocks none of these keys."""
        return not keys or (self.keys is not None and self.keys.isdisjoint(keys))


class Transactions:
    """Makes the transactions of one directory, one at a time. If it is shared, other processes may leave a record."""

    def __init__(
        self, directory: Directory, quarantine: Quarantine, onlooker: Onlooker | None = None, *, shared: bool
    ) -> None:
        self._directory = directory
        self._quarantine = quarantine
        self._shared = shared
        self._lock = threading.RLock()  # guards the attributes below and the record; taken while holding keys
        self._last: _Last | None = None
        self._busy = False
        self._number = 0
        self.unfinished = Unfinished(directory, onlooker)
        self.slowest_sync = 0.0  # seconds

    def is_unfinished(self) -> bool:
        """True if an earlier call has left a record, which readers then have to consult."""
        return self._last is not None and self._last.is_open and not self._busy

    def make(self, puts: Sequence[Put], removals: Mapping[str, int]) -> None:
        """Make all changes or none. The caller holds the locks of all keys."""
        if len(puts) + len(removals) > MAX_MEMBERS:
            why = f"{len(puts) + len(removals)} changes, over the limit of {MAX_MEMBERS}; use batch() for that many"
            raise self._failure("", OSError(errno.E2BIG, why))
        with self._lock:
            try:
                self.slowest_sync = 0.0
                self._settle_all()  # not busy yet: until it is done, readers have to look at the record
                self._busy = True
                with self._directory.creating if self._directory.ignores_case else nullcontext():
                    if twin := first_twin(self._directory, [p.key for p in puts if p.current is Current.ABSENT]):
                        raise self._failure(twin, OSError(errno.EEXIST, TWIN))
                    self._make(puts, removals)
            finally:
                self._busy = False

    def settle(self, keys: Sequence[str]) -> None:
        """Finish what was committed earlier, or raise. Call this before any other change of these keys."""
        last = self._last
        if not self._shared and (last is None or not self._is_owed(last) or last.spares(keys)):
            return  # do not wait for a transaction of other keys
        path = os.path.join(self._directory.path, f"{keys[0]}{SUFFIX}") if keys else self._directory.path
        with self._lock:
            try:
                last = self._owed()
            except OSError as error:
                raise CheckpointWriteFailed(keys[0] if keys else "", path, error, in_doubt=False) from error
            if last is None or last.spares(keys):
                return
            try:
                self._settle(last)
            except OSError as error:
                raise CheckpointWriteFailed(keys[0], path, _blocked(error), in_doubt=False) from error

    def highest_generation(self, key: str) -> int:
        """The key's generation in a record that may come back; 0 if there is none, or it does not name the key."""
        last = self._last
        if last is None or not (self._is_owed(last) or last.gone_since >= self._directory.last_ended):
            return 0
        return last.generations.get(key, 0)

    def recover(self) -> int:
        """Finish what a dead owner committed, when the directory is opened, and return the number of changes.

        If it raises OSError, Damaged or TooNew, it has deleted nothing.
        """
        with self._lock:
            record = self.unfinished.read()
            if record is None and not self.unfinished.is_there():
                return 0
            self._settle(_Last(record.keys if record else None, (), self._directory.sync_error))
            return len(record.members) if record else 0

    def give_up(self) -> None:
        """Remove a damaged record, whose content is lost. Raises OSError."""
        with self._lock:
            self._bury()

    # A new transaction

    def _make(self, puts: Sequence[Put], removals: Mapping[str, int]) -> None:
        error_before = self._directory.sync_error
        files = NewFiles(self._directory)
        try:
            try:
                members = [self._staged(put, files) for put in puts]
                members += [Member(key, MemberKind.REMOVE, generation) for key, generation in removals.items()]
                record, temp = self._write(members, files)
                self._sync_names_before(error_before)
            except BaseException:
                files.discard()
                raise
            self._put_in_place(record, temp, files, error_before)
        except FileFailed as failed:
            raise self._failure(failed.key, failed.error) from failed.error
        except OSError as error:
            raise self._failure("", error, in_doubt=True) from error
        try:
            self._sync(error_before)
        except OSError as error:
            is_back = self._take_back(files)
            raise self._failure("", error, in_doubt=not is_back) from error
        self._finish(record, {put.key: put.current for put in puts}, error_before)

    def _staged(self, put: Put, files: NewFiles) -> Member:
        kind = MemberKind.PUT
        if put.current in (Current.ABSENT, Current.DAMAGED):
            kind = MemberKind.CREATE
        elif put.current is Current.FOUND and self._directory.syncs_failed:
            kind = MemberKind.CREATE  # the checkpoint found may get lost: its own creation may not be durable
        return Member(put.key, kind, put.generation, files.add(put.blob, put.key))

    def _sync_names_before(self, error_before: OSError | None) -> None:
        """Make durable what earlier calls left unsynced, perhaps the creation of a member: the record may only follow.

        What other processes left is not known, so under sharing this always syncs.
        """
        if not self._shared and not self._directory.has_unsynced():
            return
        try:
            self._sync(error_before)
        except OSError as error:
            raise FileFailed("", error) from error

    def _take_back(self, files: NewFiles) -> bool:
        """Undo a commit that failed. True if certainly nothing of it is left; otherwise its files have to stay."""
        try:
            error_before = self._directory.sync_error
            try:
                self._directory.put(TRANSACTION)  # before the sync: if that fails, this process may die right after
            except OSError:
                self._directory.unlink(TRANSACTION)
            self._sync(error_before)
        except OSError:
            self._leave_empty()
            return False
        self._directory.discard(TRANSACTION)
        self._last = None
        files.discard()
        return True

    # Steps of a new transaction and of one that is made again

    def _write(self, members: Sequence[Member], files: NewFiles) -> tuple[Record, str]:
        """The record and its temp file. When this returns, all bytes are on the disk."""
        self._number += 1
        record = Record(self._number, tuple(members))
        temp = files.add(seal_record(record))
        files.sync()
        self.slowest_sync = max(self.slowest_sync, files.slowest_sync)
        return record, temp

    def _put_in_place(self, record: Record, temp: str, files: NewFiles, error_before: OSError | None) -> None:
        before = self._last
        earlier = before.files if before else ()
        generations = {member.key: member.generation for member in record.members}
        self._last = _Last(record.keys, (*files.names, *earlier), error_before, generations=generations)
        try:
            self._directory.rename(temp, TRANSACTION)
        except BaseException as error:
            with suppress(OSError):  # if this cannot be checked, the outcome is in doubt
                if self._directory.exists(temp):  # so the rename has not happened
                    self._last = before
                    files.discard()
                    if isinstance(error, OSError):
                        raise FileFailed("", error) from error
            raise

    def _finish(self, record: Record, currents: Mapping[str, Current], error_before: OSError | None) -> None:
        """Change the names, make the changes durable, and remove the record."""
        key = ""
        try:
            with Removals(self._directory, self._quarantine) as removed:
                for member in record.members:
                    key = member.key
                    apply(self._directory, member, currents.get(key, Current.FOUND), removed)
                key = ""
                self._sync(error_before)
        except OSError as error:
            raise self._failure(key, error, committed=True) from error
        assert self._last
        if not self._directory.discard(TRANSACTION):
            return  # the record still exists, and blocks its keys
        if self._shared:
            try:
                self._sync(error_before)
            except OSError:
                self._leave_empty()
                return
        self._last = self._last._replace(is_open=False, files=(), gone_since=self._directory.syncs_begun)

    def _sync(self, error_before: OSError | None) -> None:
        started = time.perf_counter()
        try:
            self._directory.sync_since(error_before)
        finally:
            self.slowest_sync = max(self.slowest_sync, time.perf_counter() - started)

    # What an earlier transaction has left

    def _is_owed(self, last: _Last) -> bool:
        return last.is_open or self._directory.sync_error is not last.error_before

    def _owed(self) -> _Last | None:
        """The record that has to be settled first; in a shared directory, also one that another process left."""
        if self._last and self._is_owed(self._last):
            return self._last
        if not self._shared or not self.unfinished.is_there():
            return None
        try:
            record = self.unfinished.read()
            keys = record.keys if record else None
        except (OSError, Damaged, TooNew):
            keys = None
        return _Last(keys, (), self._directory.sync_error)

    def _settle_all(self) -> None:
        try:
            if last := self._owed():
                self._settle(last)
        except OSError as error:
            raise self._failure("", _blocked(error)) from error

    def _settle(self, last: _Last) -> None:
        """Afterwards there is no record, and none comes back."""
        self._last = last._replace(is_open=True)
        try:
            record = self.unfinished.read()
        except (Damaged, TooNew) as error:
            raise OSError(errno.EBADMSG, f"the record {TRANSACTION} cannot be read: {error}") from error
        if record:
            self._make_again(record)
        else:
            self._bury()
        for file in (*last.files, *(member.file for member in record.members if member.file)) if record else last.files:
            self._directory.discard(file)

    def _make_again(self, record: Record) -> None:
        """Make all of it again except for keys that are newer by now: nobody knows which of its names are durable."""
        error_before = self._directory.sync_error
        self._number = max(self._number, record.number)
        left = [each for each in self.unfinished.progress(record) if each.standing in (Standing.WAITING, Standing.DONE)]
        if not left:
            self._bury()
            return
        currents = {each.member.key: made_ready(each, self._quarantine) for each in left}
        files = NewFiles(self._directory)
        try:
            members = [copied(each, self._directory, files) for each in left]
            again, temp = self._write(members, files)
            self._sync(error_before)  # the new files must be durable before their record replaces a committed one
        except FileFailed as failed:
            files.discard()
            if failed.error.errno not in NO_ROOM:
                raise failed.error from None
            # A committed transaction must not fail for lack of room, so it uses the old files.
            again = Record(record.number, tuple(e.member for e in left if e.standing is Standing.WAITING))
            self._sync(error_before)
        except BaseException:
            files.discard()
            raise
        else:
            try:
                self._put_in_place(again, temp, files, error_before)
            except FileFailed as failed:
                raise failed.error from None
            self._sync(error_before)
        self._finish(again, currents, error_before)

    def _bury(self) -> None:
        """Replace the record, whatever it holds, durably with an empty file, and then remove that."""
        error_before = self._directory.sync_error
        self._directory.put(TRANSACTION)
        self._sync(error_before)
        if self._directory.discard(TRANSACTION):
            self._last = None

    def _leave_empty(self) -> None:
        """Shows every process that there was a record whose removal is not durable."""
        with suppress(OSError):
            self._directory.put(TRANSACTION)

    def _failure(
        self, key: str, error: OSError, *, in_doubt: bool = False, committed: bool = False
    ) -> TransactionFailed:
        path = os.path.join(self._directory.path, key + SUFFIX if key else TRANSACTION)
        return TransactionFailed(key, path, error, in_doubt=in_doubt, committed=committed)


def _blocked(error: OSError) -> OSError:
    return OSError(error.errno, f"an earlier transaction is committed, and finishing it failed: {reason_of(error)}")
