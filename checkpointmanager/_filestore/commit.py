"""How checkpoints are replaced on disk.

A write is this list of system calls and no other, so that after a kill or a power loss at any moment the name
has the old bytes or the new ones:

    stat    .lock                      is the directory still ours? (ownership.py)
    open    .tmp-N                     new, exclusive, 0600
    write, fsync, close                the data is on the disk before any name points to it
    link    key.json -> .tmp-M         the generation that is about to be replaced ...
    rename  .tmp-M -> .previous-key    ... is the previous one from now on
    rename  .tmp-N -> key.json         the commit, seen by every reader at once
    fsync   the directory              the commit survives a power loss; the write is acknowledged (one may serve many)

Where the system allows it, a key that this owner has written before takes a shorter way, over a spare file: spares.py.
Until there are enough spares, the names change in these three steps instead, and the replaced file is one more spare:

    renameat2  .tmp-N <-> key.json
    renameat2  .tmp-N <-> .previous-key
    rename     .tmp-N -> .spare-N

A removal is made so that it can be taken back: removals.py. A folder in a checkpoint's place: folder.py.
"""

from __future__ import annotations

import errno
import itertools
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from .._errors import CheckpointWriteFailed
from .._format.names import PREVIOUS, SUFFIX
from .._format.newest import ABSENT
from .._store import Current, Put
from .directory import TWIN, Directory
from .folder import replace_folder
from .quarantine import Quarantine
from .recovery import generation_of
from .removals import Removals
from .sidebyside import side_by_side
from .spares import Spare, Spares
from .system import NO_ROOM, sync, sync_data, write_all

FILES_AT_ONCE = 128  # of a batch: bounds the open descriptors
SYNC_THREADS = 4  # of a batch, the caller's among them: eight were slower
_KEPT = (Current.OURS, Current.FOUND)  # whole, so it becomes the previous generation


class Staged(NamedTuple):
    """A new generation in its file, not yet under its name."""

    put: Put
    name: str
    descriptor: int
    size: int
    spare: Spare | None = None  # whose name it is; None: it is a temp file


class Commit:
    """One call's worth of changes. `failures` has the keys that did not make it, each with its error."""

    slowest_sync = 0.0  # seconds

    def __init__(self, directory: Directory, spares: Spares) -> None:
        self._directory = directory
        self._spares = spares
        self._temps: set[str] = set()  # names that must not survive
        self._written: dict[str, Spare] = {}  # by key: spares with a new generation that is not under its name yet
        self._descriptors: set[int] = set()
        self._changed: list[str] = []  # keys whose names were changed and not yet synced
        self.failures: dict[str, CheckpointWriteFailed] = {}

    def run(self, puts: Sequence[Put], removals: Sequence[str], *, durable: bool, quarantine: Quarantine) -> None:
        error_before = self._directory.sync_error
        self._quarantine = quarantine
        try:
            if len(puts) == 1:
                self._replace(puts[0])
            else:
                self._replace_many(puts)
            if self._written:
                self._drop_written(error_before)
            if removals:
                self._remove_all(removals, error_before, durable=durable)
            elif self._changed and durable:
                self._sync_names(error_before)
            if self._changed and not durable:
                self._directory.leave_unsynced()
        except BaseException:
            self._directory.leave_unsynced()
            raise
        finally:
            if self._descriptors or self._temps or self._written:
                self._clean_up()

    def _replace(self, put: Put) -> None:
        step = self._stage(put)
        if step and self._sync_data(step):
            self._rename(step)

    def _replace_many(self, puts: Sequence[Put]) -> None:
        """Syncs the data of many files at once, which takes a third of the time of one after the other."""
        for start in range(0, len(puts), FILES_AT_ONCE):
            staged = [step for put in puts[start : start + FILES_AT_ONCE] if (step := self._stage(put))]
            synced = side_by_side(self._sync_data, staged, SYNC_THREADS)
            for step in itertools.compress(staged, synced):
                self._rename(step)

    def _stage(self, put: Put) -> Staged | None:
        blob = self._spares.pad(put.blob)
        try:
            if put.current is Current.OURS and (taken := self._spares.take(len(blob))):
                spare, descriptor = taken
                self._descriptors.add(descriptor)
                self._written[put.key] = spare
                self._spares.overwrite(spare, descriptor, blob, put.key, put.generation)
                return Staged(put, spare.name, descriptor, len(blob), spare)
            temp, descriptor = self._write_temp(blob, put)
        except OSError as error:
            self._fail(put.key, error)
            return None
        return Staged(put, temp, descriptor, len(blob))

    def _write_temp(self, blob: bytes, put: Put) -> tuple[str, int]:
        temp = self._new_temp()
        descriptor = self._directory.create(temp)
        self._descriptors.add(descriptor)
        try:
            write_all(descriptor, blob)
        except OSError as error:
            if error.errno not in NO_ROOM or not self._make_room(put):
                raise
            os.lseek(descriptor, 0, os.SEEK_SET)
            write_all(descriptor, blob)
        return temp, descriptor

    def _make_room(self, put: Put) -> bool:
        """On a full disk, removes the spares, or else the previous generation, which the write would replace anyway."""
        if self._spares.give_up():
            return True
        if put.current not in _KEPT:
            return False
        try:
            if generation_of(self._directory, put.key + SUFFIX, put.key, sys.maxsize) <= ABSENT:
                return False  # the previous generation may be the only good one
            self._directory.unlink(PREVIOUS + put.key)
        except OSError:
            return False
        return True

    def _sync_data(self, step: Staged) -> bool:
        """Before any name points to the data."""
        try:
            started = time.perf_counter()
            if step.spare:
                sync_data(step.descriptor)
                step.spare.holds = ((step.put.key, step.put.generation),)  # and no longer anything older
            else:
                sync(step.descriptor)
            self._clock(started)
            self._close(step.descriptor)
        except OSError as error:
            if error.errno in NO_ROOM:
                self._spares.give_up()
            self._fail(step.put.key, error)
            return False
        return True

    def _rename(self, step: Staged) -> None:
        try:
            if step.spare:
                self._exchange_spare(step, step.spare)
            else:
                self._rename_temp(step)
        except OSError as error:
            self._fail(step.put.key, error)

    def _exchange_spare(self, step: Staged, spare: Spare) -> None:
        key, ended, error_before = step.put.key, self._directory.last_ended, self._directory.sync_error
        if not self._spares.exchange(spare.name, key + SUFFIX):
            # key.json was removed by hand, or names cannot be exchanged here: the new name must be synced.
            self._keep_previous(key, Current.OURS)
            self._directory.rename(spare.name, key + SUFFIX)
            del self._written[key]
            self._spares.is_gone(spare)
            self._changed.append(key)
            return
        del self._written[key]  # the update has succeeded, whatever becomes of the previous generation
        try:
            if not self._spares.exchange(spare.name, PREVIOUS + key):
                # The spare keeps its name until that is durable: if a failed sync loses the exchange and this process
                # dies, the next one must find a spare of this key.
                spare.linked = True
                self._link_previous(spare.name, key)
        except OSError:
            pass
        self._spares.put_back(spare)
        if self._directory.syncs_begun != ended:
            self._await_sync(key, error_before)

    def _await_sync(self, key: str, error_before: OSError | None) -> None:
        """Wait for another thread's sync that was under way between the exchanges of an update.

        If it fails, the first exchange may be lost and the second not. Then no name has the new generation.
        """
        try:
            self._directory.await_sync(error_before)
        except OSError as error:
            self._fail(key, error, in_doubt=True)

    def _rename_temp(self, step: Staged) -> None:
        key, current = step.put.key, step.put.current
        if current in _KEPT and self._spares.has_room(step.size) and self._exchange_temp(step):
            return
        if current is Current.ABSENT:
            self._forget_previous(key)
        elif current is not Current.DAMAGED:
            self._keep_previous(key, current)
        if current is Current.ABSENT and self._directory.ignores_case:
            self._create(step)
        else:
            self._put_in_place(step)
        self._temps.discard(step.name)
        self._changed.append(key)

    def _exchange_temp(self, step: Staged) -> bool:
        """Replace by exchange; the replaced file becomes a spare. False if that is not possible."""
        key, failed_before = step.put.key, self._directory.syncs_failed
        if not self._spares.exchange(step.name, key + SUFFIX):
            return False
        self._changed.append(key)
        with suppress(OSError):  # whatever becomes of the old generations, the new one has its name
            if self._spares.exchange(step.name, PREVIOUS + key):
                self._spares.adopt(step.name, key, step.put.generation, step.size, failed_before)
            else:
                self._directory.rename(step.name, PREVIOUS + key)
            self._temps.discard(step.name)
        return True

    def _drop_written(self, error_before: OSError | None) -> None:
        """Remove spares whose write failed. They may be whole on the disk: in doubt until the removal is durable."""
        doubtful = [key for key, spare in self._written.items() if not self._spares.drop(spare)]
        try:
            self._directory.sync_since(error_before)
        except OSError:
            doubtful = list(self._written)
        for key in doubtful:
            cause = self.failures[key].__cause__
            assert isinstance(cause, OSError)
            self._fail(key, cause, in_doubt=True)
        self._written.clear()

    def _create(self, step: Staged) -> None:
        """Put in place under a new name. Where case is ignored, another key may have come first."""
        with self._directory.creating:
            if self._directory.exists(step.put.key + SUFFIX):
                raise OSError(errno.EEXIST, TWIN)
            self._put_in_place(step)

    def _put_in_place(self, step: Staged) -> None:
        try:
            self._directory.rename(step.name, step.put.key + SUFFIX)
        except OSError as error:
            # ENOTEMPTY is what pyfakefs says.
            if step.put.current is not Current.DAMAGED or error.errno not in (errno.EISDIR, errno.ENOTEMPTY):
                raise
            replace_folder(self._directory, step.name, step.put.key, self._quarantine)

    def _keep_previous(self, key: str, current: Current) -> None:
        try:
            temp = self._link_previous(key + SUFFIX, key)
        except FileNotFoundError:  # removed by hand: there is nothing to keep
            return
        except IsADirectoryError:  # a folder is there: no reason to refuse the new generation
            return
        # A killed writer may have left both names on one inode. Then rename does nothing, and temp must be removed.
        if current is Current.OURS:
            self._temps.discard(temp)

    def _link_previous(self, name: str, key: str) -> str:
        """Make the file of this name the previous generation as well; returns the temp name used for that."""
        temp = self._new_temp()
        self._directory.link_or_copy(name, temp)
        self._directory.rename(temp, PREVIOUS + key)
        return temp

    def _forget_previous(self, key: str) -> None:
        """The leftover of a removed checkpoint must not become the previous generation of a new one."""
        error_before = self._directory.sync_error
        with Removals(self._directory, self._quarantine) as removed:
            if removed.take(PREVIOUS + key, key):
                self._directory.sync_since(error_before)

    def _remove_all(self, keys: Sequence[str], error_before: OSError | None, *, durable: bool) -> None:
        with Removals(self._directory, self._quarantine) as removed:
            for key in keys:
                self._remove(key, removed)
            if self._changed and durable and not self._sync_names(error_before):
                removed.put_back()

    def _remove(self, key: str, removed: Removals) -> None:
        """Also syncs the directory if the file is gone already: someone may just have removed it."""
        try:
            removed.take(key + SUFFIX, key)
        except OSError as error:
            self._fail(key, error, in_doubt=key + SUFFIX in self._directory.stuck)
            return
        with suppress(OSError):  # a previous generation that stays is an orphan, which is never read
            removed.take(PREVIOUS + key, key)
        self._changed.append(key)

    def _sync_names(self, error_before: OSError | None) -> bool:
        started = time.perf_counter()
        try:
            # The kernel reports a failure once, and all threads share the descriptor: another's counts here as well.
            self._directory.sync_since(error_before)
        except OSError as error:
            for key in self._changed:
                self._fail(key, error, in_doubt=True)
            return False
        finally:
            self._clock(started)
        return True

    def _clean_up(self) -> None:
        for descriptor in list(self._descriptors):
            with suppress(OSError):
                self._close(descriptor)
        for temp in self._temps:
            self._directory.discard(temp)
        for spare in self._written.values():  # after an interrupt
            self._spares.drop(spare)

    def _close(self, descriptor: int) -> None:
        """Only once: after two interrupts of a batch, its threads and its clean-up may both come here."""
        try:
            self._descriptors.remove(descriptor)
        except KeyError:
            return
        os.close(descriptor)

    def _new_temp(self) -> str:
        temp = self._directory.new_temp()
        self._temps.add(temp)
        return temp

    def _clock(self, started: float) -> None:
        self.slowest_sync = max(self.slowest_sync, time.perf_counter() - started)

    def _fail(self, key: str, error: OSError, *, in_doubt: bool = False) -> None:
        path = os.path.join(self._directory.path, key + SUFFIX)
        failure = CheckpointWriteFailed(key, path, error, in_doubt=in_doubt)
        failure.__cause__ = error
        self.failures[key] = failure
