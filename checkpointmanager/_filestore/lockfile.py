"""The kernel's lock on the file `.lock` of a directory, through our own descriptor.

filelock's FileLock keeps state in Python. A signal handler that raises can leave it half updated, and then every lock
of the process hangs. Here the descriptor is the only state: the lock ends when it is unlocked or closed.
"""

from __future__ import annotations

import os
import time
import weakref

from .._interruption import ignored
from .._locks import notify_after_fork
from ..format import LOCK
from .directory import Directory
from .system import try_lock, unlock

POLL_SECONDS = 0.01  # between attempts: the kernel does not wake a waiter
FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LockFile:
    """Contends with every other process, and with other LockFiles of this one, but not with other threads."""

    descriptor = -1  # open while locked, and for a moment before and after
    _is_locked = False

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._close = os.close  # of the `os` that opens the descriptor: pyfakefs may be gone when this is collected
        _all.add(self)
        notify_after_fork(self)

    def take(self, timeout: float) -> bool:
        """Take the lock. False if another owner held it for all of `timeout` seconds; call give_back even then."""
        deadline = time.monotonic() + timeout
        while not self._try():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL_SECONDS, left))
        self._is_locked = True
        return True

    def is_held_here(self) -> bool:
        """True if another LockFile of this process holds the lock. Compares files, as in containers many pids are 1."""
        with ignored(OSError):
            status = self._directory.stat(LOCK)
            others = [lock.descriptor for lock in list(_all) if lock is not self and lock._is_locked]
            return any(os.path.samestat(os.fstat(descriptor), status) for descriptor in others)
        return False

    def give_back(self) -> None:
        """Release the lock. May be called twice, and again after an interrupt."""
        if self.descriptor >= 0:
            try:
                with ignored(OSError):  # closing unlocks too, unless a forked child has the descriptor
                    unlock(self.descriptor)
            finally:
                self.close()

    def close(self) -> None:
        """Close without unlocking, as a forked child must: the parent keeps the lock."""
        self._is_locked = False
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            with ignored(OSError):
                self._close(descriptor)

    __del__ = forked = close

    def _try(self) -> bool:
        self.close()
        self.descriptor = os.open(LOCK, FLAGS, 0o600, dir_fd=self._directory.descriptor)
        # A file that was unlinked meanwhile guards nothing.
        return try_lock(self.descriptor) and os.fstat(self.descriptor).st_nlink > 0


_all: weakref.WeakSet[LockFile] = weakref.WeakSet()
