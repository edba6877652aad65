"""The FileStore: which way a read or a change takes, and what happens at open and close."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Unpack

from .._errors import (
    CheckpointError,
    CheckpointNotFound,
    CheckpointTooNew,
    CheckpointWriteFailed,
    DirectoryUnusable,
    TransactionFailed,
)
from .._events import Event, EventKind
from .._interruption import ignored, pass_on_interruption
from .._locks import CallGate, Unbroken
from .._options import LARGEST_BYTES, FileOptions, check_options, check_path
from .._store import Put, Remove
from ..format import (
    JOURNAL,
    MAX_BYTES,
    Damaged,
    Reason,
    current_name,
    is_removal,
    key_in,
    previous_name,
)
from .directory import Directory
from .journal import Journal
from .names import Errors, Staged, discard_temps, stage
from .onlooker import Onlooker
from .ownership import Ownership, ReadOnly
from .plain import PlainChanges, sync_names
from .quarantine import Quarantine
from .reading import read_file
from .system import will_need
from .takeover import finish_journal, take_over

SHARING_TIMEOUT = 10.0  # seconds that a write waits for the other processes by default
SLOW_SYNC_SECONDS = 1.0


class FileStore:
    """A Store on disk. See CheckpointManager for what the options mean."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        emit: Callable[[Event], object] = lambda _: None,
        **options: Unpack[FileOptions],
    ) -> None:
        if sys.platform == "win32":
            raise CheckpointError(f"{path}: files need a POSIX system; a MemoryStore works here")
        check_path(path)
        check_options(options)
        sharing, read_only = options.get("sharing", False), options.get("read_only", False)
        durable = options.get("durability", "full") == "full"
        self.max_bytes = options.get("max_bytes", MAX_BYTES)
        self.exclusive = not sharing and not read_only
        self._emit = emit
        self._metrics = options.get("metrics")
        insecure = options.get("allow_insecure", False)
        self._directory = Directory(path, create=not read_only, allow_insecure=insecure)
        self.path = self._directory.path
        self._quarantine = Quarantine(self._directory)
        self._journal = self._new_journal() if self.exclusive and durable else None
        # What counts instead of the names: changes of this owner's journal, or of one that has no owner.
        self._instead = self._journal or (None if self.exclusive else Onlooker(self._directory, self.max_bytes))
        self._plain = PlainChanges(self._directory, durable=durable)
        self._transacting = threading.Lock()  # held while there is the journal of one plain transaction
        self._unended = False  # such a journal has stayed, because the disk failed; whoever opens next finishes it
        self._gate = CallGate(self.path)
        if read_only:
            self._ownership: Ownership | ReadOnly = ReadOnly(self.path)
            return
        timeout = options.get("lock_timeout")
        if timeout is None:
            timeout = SHARING_TIMEOUT * sharing
        self._ownership = Ownership(self._directory, sharing=sharing, owner=options.get("owner", ""), timeout=timeout)
        try:
            with self._ownership.opening():
                take_over(self._directory, self._journal or self._new_journal(), emit, keep=self._journal is not None)
        except BaseException:
            self.close()
            raise

    def path_of(self, key: str) -> str:
        return os.path.join(self.path, current_name(key))

    # Reading

    def keys(self) -> list[str]:
        with self._gate:
            keys = _keys_in(self._directory.names())
            for key in self._instead.keys() if self._instead else ():
                (keys.add if self._exists(key) else keys.discard)(key)
        return list(keys)

    def exists(self, key: str) -> bool:
        with self._gate:
            return self._exists(key)

    def read(self, key: str, *, previous: bool = False) -> bytes:
        name = previous_name(key) if previous else current_name(key)
        with self._gate:
            change = self._instead.change(key, previous=previous) if self._instead else None
            try:
                blob = change.blob if change else read_file(self._directory, name, self.max_bytes)
            except FileNotFoundError:
                blob = None
        if blob is None or is_removal(blob, key):
            raise CheckpointNotFound(key, os.path.join(self.path, name))
        if len(blob) > self.max_bytes:
            raise Damaged(Reason.TOO_LARGE, f"{len(blob)} bytes, over the limit of max_bytes={self.max_bytes}")
        return blob

    def prefetch(self, keys: Sequence[str]) -> None:
        with self._gate:
            for key in keys:
                with ignored(OSError):
                    self._directory.use(current_name(key), will_need)

    def _exists(self, key: str) -> bool:
        try:
            if change := self._instead.change(key) if self._instead else None:
                return change.blob is not None
            return self._directory.exists(current_name(key))
        except Damaged:  # a file that cannot be read is there
            return True
        except OSError as error:
            pass_on_interruption(error)
            raise DirectoryUnusable(self.path, error) from error

    # Writing

    def writing(self) -> AbstractContextManager[None]:
        return self._gate if self.exclusive else Unbroken(self._writing_with_lock())

    def _writing_with_lock(self) -> Generator[None, None, None]:
        with self._gate, self._ownership.writing():
            try:
                self._take_turn()
            except (OSError, CheckpointTooNew) as error:
                pass_on_interruption(error)
                cause = error if isinstance(error, OSError) else OSError(None, str(error))
                raise CheckpointWriteFailed("", self.path, cause, in_doubt=False) from error
            yield

    def _take_turn(self) -> None:
        """In a shared directory another process may have died since this one held the lock."""
        if self._directory.exists(JOURNAL):
            finish_journal(self._directory, self._new_journal(), self._emit, keep=False)
        elif not self._ownership.was_last or self._plain.has_failed:
            sync_names(self._directory)
        self._plain.has_failed = self._unended = False

    def check_owner(self, keys: Sequence[str] = ()) -> None:
        self._ownership.check()
        if self._journal:
            try:
                self._journal.finish(keys)
            except OSError as error:
                pass_on_interruption(error)
                key = keys[0] if keys else ""
                raise CheckpointWriteFailed(key, self.path_of(key), error, in_doubt=False) from error

    def commit(self, changes: Sequence[Put | Remove], *, together: bool = False) -> Mapping[str, CheckpointWriteFailed]:
        self._gate.check()
        if together:
            self._refuse_if_too_large(changes)
        errors: Errors = {}
        staged = stage(self._directory, changes, errors, self.max_bytes)
        seconds = 0.0
        if together and errors:
            discard_temps(self._directory, staged)
        elif self._journal:
            seconds = self._journal.commit(staged, errors, together=together)
        elif self._unended:
            self._refuse(staged, errors)
        elif together and len(staged) > 1:
            seconds = self._transact_plainly(staged, errors)
        else:
            seconds = self._plain.commit(staged, errors)
        if self._metrics and seconds:
            self._metrics.synced(self.path, seconds)
        if seconds > SLOW_SYNC_SECONDS:
            self._emit(Event(EventKind.SLOW_SYNC, self.path, f"the disk took {seconds:.1f} s to sync", seconds=seconds))
        failures: dict[str, CheckpointWriteFailed] = {}
        for key, (error, in_doubt) in errors.items():
            if together:
                raise TransactionFailed(key, self.path_of(key), error, in_doubt=in_doubt) from error
            failures[key] = CheckpointWriteFailed(key, self.path_of(key), error, in_doubt=in_doubt)
            failures[key].__cause__ = error
        return failures

    def highest_generation(self, key: str) -> int:
        return self._journal.highest_generation(key) if self._journal else 0

    def _refuse_if_too_large(self, changes: Sequence[Put | Remove]) -> None:
        """A transaction is one record, which must fit into a journal that can be read."""
        size = sum(len(change.blob) for change in changes if isinstance(change, Put))
        if size > LARGEST_BYTES:
            why = f"a transaction of {size} bytes, over the limit of {LARGEST_BYTES}; use batch()"
            raise TransactionFailed("", self.path, OSError(errno.E2BIG, why))

    def _transact_plainly(self, staged: Sequence[Staged], errors: Errors) -> float:
        """A journal of one record, which goes when its changes are durable: one at a time, as all have one name."""
        with self._transacting:
            if self._unended:  # by the transaction that this one has waited for
                self._refuse(staged, errors)
                return 0.0
            journal = self._new_journal(size=0)
            try:
                return journal.commit(staged, errors, together=True)
            finally:
                try:
                    self._unended = not journal.close()
                except BaseException:  # interrupted by a signal handler
                    self._unended = not journal.close()
                    raise

    def _refuse(self, staged: Sequence[Staged], errors: Errors) -> None:
        """A change that the journal of an earlier transaction does not have would be undone by the next open."""
        discard_temps(self._directory, staged)
        why = "the journal of an earlier transaction could not be ended; close and open again"
        errors.update((each.change.key, (OSError(errno.EBUSY, why), False)) for each in staged)

    # Quarantine

    def quarantine(self, key: str, reason: str) -> str:
        with self._gate:
            return self._quarantine.keep(current_name(key), key, reason)

    def quarantined(self) -> dict[str, list[str]]:
        with self._gate:
            try:
                return self._quarantine.kept()
            except OSError as error:
                pass_on_interruption(error)
                raise DirectoryUnusable(self.path, error) from error

    # Opening and closing

    def close(self) -> None:
        self._gate.close(self._give_back)

    def _give_back(self) -> None:
        try:
            if self._journal:
                self._journal.close()
        finally:
            try:
                self._ownership.close()
            finally:
                self._directory.close()

    def _new_journal(self, size: int | None = None) -> Journal:
        return Journal(self._directory, self.max_bytes, self._emit, self._metrics, size=size)


def _keys_in(names: Iterable[str]) -> set[str]:
    # Not inside a with block: from Python 3.13 on, a handler that raises in a comprehension there skips __exit__.
    return {key for name in names if (key := key_in(name)) is not None}
