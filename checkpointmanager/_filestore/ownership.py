"""The one writer of a directory, by the kernel's lock on `.lock`.

The lock dies with its process. The file's presence means nothing and its text is only a courtesy; it is never
removed, because a waiter on the old inode and a newcomer on a new one would both own the directory.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from filelock import FileLock, Timeout

from .._errors import CheckpointWriteFailed, DirectoryLocked, DirectoryUnusable, InsecureDirectory
from .._format.lockowner import MAX_LOCK_TEXT_BYTES, LockOwner
from .._format.names import LOCK
from .directory import Directory

POLL_SECONDS = 0.01  # how often a waiter tries: the kernel does not wake it

# A lock that a test leaves open would, once pyfakefs is gone, close the real descriptor of the same number.
_never_collected: list[FileLock] = []


class Ownership:
    """Held for life (the default), or around each write (`sharing`)."""

    def __init__(self, directory: Directory, *, sharing: bool, owner: str, timeout: float) -> None:
        self._directory = directory
        self._path = os.path.join(directory.path, LOCK)
        self._owner = owner
        self._sharing = sharing
        self._timeout = timeout
        self._threads = threading.RLock()  # under sharing: the kernel's lock does not exclude threads
        self._identity: tuple[int, int] | None = None
        self._lost = False
        self._lock = FileLock(
            self._path,
            timeout=timeout,
            mode=0o600,
            thread_local=False,
            fallback_to_soft=False,
            poll_interval=POLL_SECONDS,
            on_acquired=self._introduce,
        )
        if not isinstance(os, types.ModuleType):  # pyfakefs
            _never_collected.append(self._lock)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """While the directory is taken over; from then on the owner for life, unless it is shared."""
        if self._sharing:
            with self.writing():
                yield
            return
        self._take()
        yield

    def close(self) -> None:
        self._lock.release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around each change: under sharing the lock is taken, else it is held anyway."""
        if not self._sharing:
            yield
            return
        with self._threads:
            self._take()
            try:
                yield
            finally:
                self._lock.release()

    def lock_owner(self) -> LockOwner | None:
        """Who says to hold the lock."""
        with suppress(OSError):
            descriptor = self._directory.open(LOCK)
            try:
                return LockOwner.parse(os.read(descriptor, MAX_LOCK_TEXT_BYTES))
            finally:
                os.close(descriptor)
        return None

    def _take(self) -> None:
        self._refuse_if_moved()
        try:
            if not stat.S_ISREG(self._directory.stat(LOCK).st_mode):
                raise InsecureDirectory(self._path, "something else stands where the lock file belongs")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DirectoryUnusable(self._path, error) from error
        try:
            self._lock.acquire()
            try:
                if not self._is_in_place():
                    why = "the lock file was replaced while it was taken; try again"
                    raise DirectoryLocked(self._directory.path, why)
            except BaseException:  # also a Ctrl-C: nobody else would ever give it back
                self._lock.release()
                raise
        except Timeout:
            waited = f" after waiting {self._timeout:g} s" if self._timeout else ""
            raise DirectoryLocked(self._directory.path, f"locked{waited} by another owner", self.lock_owner()) from None
        except OSError as error:
            raise DirectoryUnusable(self._path, error) from error

    def _refuse_if_moved(self) -> None:
        """The lock is taken by path, and filelock would make a directory that is missing."""
        try:
            in_place = os.path.samestat(os.stat(self._directory.path), os.fstat(self._directory.descriptor))
        except FileNotFoundError:
            in_place = False
        except OSError as error:
            raise DirectoryUnusable(self._directory.path, error) from error
        if not in_place:
            gone = OSError(errno.ENOENT, "the directory was removed or replaced since it was opened")
            raise DirectoryUnusable(self._directory.path, gone)

    def check(self) -> None:
        """One stat a write: if somebody removed or replaced `.lock`, another process may own the directory."""
        if self._sharing:
            return  # it was taken just now
        try:
            if not self._is_in_place():
                self._lost = True  # for good: another may have changed any file since
        except OSError as error:
            raise CheckpointWriteFailed("", self._path, error, in_doubt=False) from error
        if self._lost:
            why = "the lock file was removed or replaced while this process held it, so another may own the directory"
            raise DirectoryLocked(self._directory.path, f"{why}; close and open again", self.lock_owner())

    def _is_in_place(self) -> bool:
        try:
            status = os.stat(LOCK, dir_fd=self._directory.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def _introduce(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._identity = (status.st_dev, status.st_ino)
        with suppress(OSError):  # on a full disk the lock counts all the same
            os.truncate(descriptor, 0)
            os.write(descriptor, LockOwner.of_this_process(self._owner).to_json())


class ReadOnly:
    """Stands in for an owner where writing is not meant."""

    def __init__(self, path: str) -> None:
        self._path = path

    @contextmanager
    def writing(self) -> Iterator[None]:
        error = OSError(errno.EROFS, "opened with read_only=True")
        raise CheckpointWriteFailed("", self._path, error, in_doubt=False)
        yield

    def check(self) -> None:
        """Nobody gets as far as that."""

    def close(self) -> None:
        """There is nothing to give back."""
