"""Ensures that a directory has one writer, with the kernel's lock on `.lock`.

The lock dies with its process. The file's presence means nothing and its text is only a courtesy; it is never
removed, because a waiter on the old inode and a newcomer on a new one would both own the directory.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from .._errors import CheckpointWriteFailed, DirectoryLocked, DirectoryUnusable, InsecureDirectory
from .._interruption import ignored, pass_on_interruption
from .._locks import Unbroken, is_mine
from ..format import LOCK, MAX_LOCK_TEXT_BYTES, Damaged, LockOwner
from .directory import Directory
from .lockfile import LockFile
from .reading import read_file


class Ownership:
    """The ownership of a directory, held for life (the default) or only around each write (`sharing`)."""

    def __init__(self, directory: Directory, *, sharing: bool, owner: str, timeout: float) -> None:
        self._directory = directory
        self._path = os.path.join(directory.path, LOCK)
        self._owner = owner
        self._sharing = sharing
        self._timeout = timeout
        self._threads = threading.RLock()  # under sharing: the kernel's lock does not exclude threads
        self._identity: tuple[int, int] | None = None
        self._lost = False
        self._lock = LockFile(directory)
        self._taken = False  # under sharing: used only by the thread that holds _threads
        self._text = b""  # what this owner last wrote into the lock file
        self.was_last = False  # nobody else has held the lock since this owner did

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Hold the lock while the directory is taken over, and from then on for life unless the directory is shared."""
        if self._sharing:
            with self.writing():
                yield
            return
        self._take()  # FileStore closes if this raises
        yield

    def close(self) -> None:
        self._lock.give_back()

    def writing(self) -> AbstractContextManager[None]:
        """Wrap each change in this: under sharing it takes the lock, otherwise the lock is held anyway."""
        return Unbroken(self._writing()) if self._sharing else nullcontext()

    def _writing(self) -> Generator[None, None, None]:
        if is_mine(self._threads):  # called by a signal handler, or by a function passed to update
            if not self._taken:
                raise RuntimeError("a signal handler must not make a change while its thread waits for the lock")
            yield
        else:
            with self._threads:
                self._taken = False
                try:
                    self._take()
                    self._taken = True
                    yield
                finally:
                    try:
                        self._lock.give_back()
                    finally:
                        self._lock.give_back()  # in case a signal handler interrupted the first call

    def lock_owner(self) -> LockOwner | None:
        """The process that claims to hold the lock."""
        try:
            return LockOwner.parse(read_file(self._directory, LOCK, MAX_LOCK_TEXT_BYTES))
        except (FileNotFoundError, Damaged):
            return None

    def _take(self) -> None:
        self._refuse_if_moved()
        try:
            if not stat.S_ISREG(self._directory.stat(LOCK).st_mode):
                raise InsecureDirectory(self._path, "something else stands where the lock file belongs")
        except FileNotFoundError:
            pass
        except OSError as error:
            pass_on_interruption(error)
            raise DirectoryUnusable(self._path, error) from error
        try:
            if not self._lock.take(self._timeout):
                waited = f" after waiting {self._timeout:g} s" if self._timeout else ""
                whom = "another manager in this process" if self._lock.is_held_here() else "another owner"
                why = f"locked{waited} by {whom}"
                raise DirectoryLocked(self._directory.path, why, self.lock_owner())
            self._introduce(self._lock.descriptor)
            if not self._is_in_place():
                why = "the lock file was replaced while it was taken; try again"
                raise DirectoryLocked(self._directory.path, why)
        except OSError as error:
            pass_on_interruption(error)
            raise DirectoryUnusable(self._path, error) from error

    def _refuse_if_moved(self) -> None:
        """Others take the lock by path: the lock of a directory that is no longer there excludes no other process."""
        try:
            in_place = os.path.samestat(os.stat(self._directory.path), os.fstat(self._directory.descriptor))
        except FileNotFoundError:
            in_place = False
        except OSError as error:
            pass_on_interruption(error)
            raise DirectoryUnusable(self._directory.path, error) from error
        if not in_place:
            gone = OSError(errno.ENOENT, "the directory was removed or replaced since it was opened")
            raise DirectoryUnusable(self._directory.path, gone)

    def check(self) -> None:
        """One stat per write: if a user removed or replaced `.lock`, another process may own the directory."""
        if self._sharing:
            return  # the lock was taken just now
        try:
            if not self._is_in_place():
                self._lost = True  # for good: another process may have changed any file since
        except OSError as error:
            pass_on_interruption(error)
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
        with ignored(OSError):  # the lock is valid even if a full disk has no room for the text
            self.was_last = bool(self._text) and os.read(descriptor, MAX_LOCK_TEXT_BYTES) == self._text
            if not self.was_last:
                self._text = LockOwner.of_this_process(self._owner).to_json()
                os.truncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
                os.write(descriptor, self._text)


class ReadOnly:
    """Stands in for the ownership where nothing may be written."""

    was_last = False

    def __init__(self, path: str) -> None:
        self._path = path

    @contextmanager
    def writing(self) -> Iterator[None]:
        error = OSError(errno.EROFS, "opened with read_only=True")
        raise CheckpointWriteFailed("", self._path, error, in_doubt=False)
        yield

    def check(self) -> None:
        """Never reached: `writing` has already refused."""

    def close(self) -> None:
        """There is nothing to give back."""
