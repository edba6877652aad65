"""Checkpoints as files in one directory: the only room that touches the disk.

FileStore opens and reads; commit.py and spares.py replace one, transactions.py several together, recovery.py and
leftovers.py clear up after a crash, ownership.py keeps other writers out, quarantine.py keeps what was damaged,
directory.py and system.py are the edge to the operating system.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Literal, TypeVar

from .._errors import (
    CheckpointError,
    CheckpointNotFound,
    CheckpointTooNew,
    CheckpointWriteFailed,
    DirectoryUnusable,
)
from .._events import Event, EventKind
from .._format.envelope import MAX_BYTES
from .._format.keys import is_name
from .._format.names import LOCK, PREVIOUS, SPARES, SUFFIX, TRANSACTION
from .._format.reason import Damaged, Reason, TooNew, reason_of
from .._options import check_options, check_path
from .._store import Put
from .._unbroken import Unbroken
from .commit import Commit
from .directory import Directory
from .inflight import InFlight
from .leftovers import sweep
from .onlooker import Onlooker
from .ownership import Ownership, ReadOnly
from .quarantine import Quarantine
from .reading import read_file
from .recovery import recover
from .spares import Spares
from .system import FORGETFUL, has_fast_commit, is_unreliable, will_need
from .transactions import Transactions

R = TypeVar("R")
Durability = Literal["full", "atomic"]

EXPECTED_BYTES = 1 << 20  # to prefetch of each file that will be read soon; the kernel itself reads ahead the rest
SHARING_TIMEOUT = 10.0  # seconds that a write waits for the other processes by default
SLOW_SYNC_SECONDS = 1.0


class FileStore:
    """A Store on disk. See CheckpointManager for what the options mean."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sharing: bool = False,
        read_only: bool = False,
        durability: Durability = "full",
        owner: str = "",
        lock_timeout: float | None = None,
        allow_insecure: bool = False,
        max_bytes: int = MAX_BYTES,
        emit: Callable[[Event], object] = lambda _: None,
        on_sync: Callable[[str, float], object] | None = None,
    ) -> None:
        if sys.platform == "win32":
            raise CheckpointError(f"{path}: files need a POSIX system; a MemoryStore works here")
        check_path(path)
        check_options(
            {
                "sharing": sharing,
                "read_only": read_only,
                "durability": durability,
                "owner": owner,
                "lock_timeout": lock_timeout,
                "allow_insecure": allow_insecure,
                "max_bytes": max_bytes,
            }
        )
        self._durable = durability == "full"
        self.max_bytes = max_bytes
        self._emit = emit
        self._on_sync = on_sync
        self._directory = Directory(path, create=not read_only, allow_insecure=allow_insecure)
        self._quarantine = Quarantine(self._directory)
        self.path = self._directory.path
        self.exclusive = not sharing and not read_only
        allowed = self.exclusive and self._durable
        self._spares = Spares(self._directory, self._quarantine, allowed=allowed, max_bytes=max_bytes)
        self._onlooker = Onlooker(self._directory, max_bytes) if read_only else None
        self._transactions = Transactions(self._directory, self._quarantine, self._onlooker, shared=sharing)
        self._in_flight = InFlight(self.path)
        if read_only:
            self._ownership: Ownership | ReadOnly = ReadOnly(self.path)
            return
        timeout = lock_timeout if lock_timeout is not None else SHARING_TIMEOUT * sharing
        self._ownership = Ownership(self._directory, sharing=sharing, owner=owner, timeout=timeout)
        try:
            with self._ownership.opening():
                self._take_over()
        except BaseException:
            self.close()
            raise

    def path_of(self, key: str) -> str:
        return os.path.join(self.path, key + SUFFIX)

    def keys(self) -> list[str]:
        with self._in_flight:
            names = self._directory.names()
            changes = self._unfinished_changes()
        keys = [key for name in names if name.endswith(SUFFIX) and is_name(key := name[: -len(SUFFIX)])]
        if not changes:
            return keys
        return [key for key in {*keys, *changes} if changes.get(key, key)]

    def exists(self, key: str) -> bool:
        with self._in_flight:
            try:
                return self._found(key, self._directory.stat) is not None
            except DirectoryUnusable:  # a spare cannot be read: that is not about this key
                raise
            except OSError as error:
                raise DirectoryUnusable(self.path, error) from error

    def read(self, key: str, *, previous: bool = False) -> bytes:
        with self._in_flight:
            try:
                blob = self._found(key, lambda name: self._read(key, name), previous=previous)
            except DirectoryUnusable:
                raise
            except OSError as error:
                raise Damaged(Reason.UNREADABLE, reason_of(error), errno=error.errno) from error
        if blob is None:
            raise CheckpointNotFound(key, os.path.join(self.path, PREVIOUS + key if previous else key + SUFFIX))
        return blob

    def identity(self, key: str) -> object:
        with self._in_flight:
            try:
                status = self._found(key, self._directory.stat)
            except OSError:
                return None
        return status and (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def expect(self, keys: Sequence[str]) -> None:
        with self._in_flight:
            for key in keys:
                with suppress(OSError):
                    descriptor = self._directory.open(key + SUFFIX)
                    try:
                        will_need(descriptor, EXPECTED_BYTES)
                    finally:
                        os.close(descriptor)

    def writing(self) -> AbstractContextManager[None]:
        return self._in_flight if self.exclusive else Unbroken(self._writing_with_lock())

    def _writing_with_lock(self) -> Generator[None, None, None]:
        with self._in_flight, self._ownership.writing():
            self._take_over_from_the_dead()
            yield

    def _take_over_from_the_dead(self) -> None:
        """Since this process opened the shared directory, an owner may have come and died."""
        try:
            left = self._directory.exists(SPARES)
        except OSError as error:
            raise CheckpointWriteFailed("", self.path, error, in_doubt=False) from error
        if left:
            self._take_over()

    def confirm(self, keys: Sequence[str] = ()) -> None:
        self._ownership.check()
        self._transactions.settle(keys)

    def commit(self, puts: Sequence[Put], removals: Sequence[str] = ()) -> dict[str, CheckpointWriteFailed]:
        commit = Commit(self._directory, self._spares)
        self._in_flight.check()
        commit.run(puts, removals, durable=self._durable, quarantine=self._quarantine)
        self._report_syncs(commit.slowest_sync)
        return commit.failures

    def transact(self, puts: Sequence[Put], removals: Mapping[str, int]) -> None:
        self._in_flight.check()
        padded = [put._replace(blob=self._spares.pad(put.blob)) for put in puts]
        try:
            self._transactions.make(padded, removals)
        finally:
            self._report_syncs(self._transactions.slowest_sync)

    def _report_syncs(self, seconds: float) -> None:
        if self._on_sync and seconds:
            self._on_sync(self.path, seconds)
        if seconds > SLOW_SYNC_SECONDS:
            self._emit(Event(EventKind.SLOW_SYNC, self.path, f"the disk took {seconds:.1f} s to sync", seconds=seconds))

    def highest_generation(self, key: str) -> int:
        return max(self._spares.highest_generation(key), self._transactions.highest_generation(key))

    def quarantine(self, key: str, reason: Reason) -> str:
        with self._in_flight:
            return self._quarantine.keep(key + SUFFIX, key, reason)

    def quarantined(self) -> dict[str, list[str]]:
        with self._in_flight:
            try:
                return self._quarantine.kept()
            except OSError as error:
                raise DirectoryUnusable(self.path, error) from error

    def close(self) -> None:
        self._in_flight.close(self._give_back)

    def _give_back(self) -> None:
        try:
            self._spares.close()
        finally:
            try:
                self._ownership.close()
            finally:
                self._directory.close()

    def _take_over(self) -> None:
        """Clear what dead writers left, and make durable whatever they did, before this store serves anything."""
        names = set(self._directory.names())
        try:
            if TRANSACTION in names:
                self._refuse_newer_record()
            recovered = recover(self._directory, names, self.max_bytes, self._quarantine)
            if TRANSACTION in names:
                self._finish_transaction()
                names = set(self._directory.names())
            unfinished, orphaned = sweep(self._directory, names, self._quarantine)
            self._directory.ignores_case = self._has_twin(LOCK)
        except OSError as error:
            raise DirectoryUnusable(self.path, error) from error
        if recovered:
            self._emit(Event(EventKind.STALE_FILES, self.path, recovered))
        if unfinished or orphaned:
            detail = f"removed {unfinished} unfinished and {orphaned} orphaned files of an earlier process"
            self._emit(Event(EventKind.STALE_FILES, self.path, detail))
        self._report_file_system(self._directory.file_system)

    def _has_twin(self, name: str) -> bool:
        """True if the name in upper case is the same file."""
        try:
            return os.path.samestat(self._directory.stat(name), self._directory.stat(name.upper()))
        except FileNotFoundError:
            return False

    def _report_file_system(self, kind: str) -> None:
        if kind in FORGETFUL:
            detail = f"{kind} does not survive a reboot, so neither does what is written here"
            self._emit(Event(EventKind.FORGETFUL_FILE_SYSTEM, self.path, detail))
        elif is_unreliable(kind):
            detail = f"{kind} may report a sync or a lock that it did not make; use a local disk"
            self._emit(Event(EventKind.UNRELIABLE_FILE_SYSTEM, self.path, detail))
        elif kind == "ext4" and has_fast_commit(self._directory.device):
            detail = "ext4 with fast_commit may lose what was synced; turn it off: tune2fs -O ^fast_commit"
            self._emit(Event(EventKind.UNRELIABLE_FILE_SYSTEM, self.path, detail))
        if self._directory.ignores_case:
            detail = "names that differ only in upper and lower case are one here, so such keys are refused"
            self._emit(Event(EventKind.CASE_INSENSITIVE_FILE_SYSTEM, self.path, detail))

    def _refuse_newer_record(self) -> None:
        """Refuse a record that a newer release wrote, before anything is changed."""
        try:
            self._transactions.unfinished.read()
        except TooNew as too_new:
            raise CheckpointTooNew("", os.path.join(self.path, TRANSACTION), str(too_new)) from None
        except Damaged:
            pass  # _finish_transaction reports it and gives it up

    def _finish_transaction(self) -> None:
        try:
            changes = self._transactions.recover()
        except Damaged as damage:
            path = os.path.join(self.path, TRANSACTION)
            detail = f"{damage.detail}; an unfinished transaction is lost, and some of its changes may have been made"
            self._emit(Event(EventKind.DAMAGE, path, detail, reason=damage.reason))
            self._transactions.give_up()
            return
        if changes:
            detail = f"finished a transaction of {changes} changes that an earlier process had committed"
            self._emit(Event(EventKind.TRANSACTION_FINISHED, self.path, detail))

    def _unfinished_changes(self) -> Mapping[str, str]:
        if self.exclusive and not self._transactions.is_unfinished():
            return {}
        try:
            return self._transactions.unfinished.changes()
        except DirectoryUnusable:
            raise
        except OSError as error:
            raise DirectoryUnusable(self.path, error) from error

    def _found(self, key: str, look: Callable[[str], R], *, previous: bool = False) -> R | None:
        """What `look` returns for the file that counts for a key; None if the key has no file."""
        name = PREVIOUS + key if previous else key + SUFFIX
        if self.exclusive and not self._transactions.is_unfinished():
            try:
                return look(name)
            except FileNotFoundError:
                return None
        name_of = self._transactions.unfinished.name_of
        name, before = name_of(key, previous=previous), ""
        while name not in ("", before):
            try:
                return look(name)
            except FileNotFoundError:  # perhaps its transaction has been finished meanwhile
                name, before = name_of(key, previous=previous), name
        return None

    def _read(self, key: str, name: str) -> bytes:
        if self._onlooker and name in (key + SUFFIX, PREVIOUS + key):
            newer = self._onlooker.read(key, previous=name == PREVIOUS + key)
            if newer is not None:
                return newer
        return read_file(self._directory, name, self.max_bytes)
