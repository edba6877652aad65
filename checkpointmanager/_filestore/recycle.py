"""Writing the new generation over the file of the one before, instead of into a new file.

A rename that replaces a file frees an inode, which is a dear part of a write. When two names only change files
nothing is freed: the spare, which is the previous generation's file, is overwritten and synced, and then trades
places with the current one. That leaves the previous generation where it belongs, for free.

    open        .previous-key                     the spare
    fstat       one link                          else a killed writer left both names on one inode
                a file of ours, mode 0600         as a new one would be, whatever was done to the old one
    fcntl       take and give back a lease        granted only if nobody else has it open: no reader is cut
    write, (ftruncate,) fsync, close
    renameat2   .previous-key <-> key.json        the commit
    fsync       the directory

The spare may be overwritten only when the exchange that made it the spare is durable, or else the disk may still
call it the current checkpoint. So only for keys whose last write by this owner was acknowledged (Current.OURS),
and never where directories are shared or not synced. A reader that has found the name but not opened it yet is
not seen by the lease; that is why readers look twice.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import types
from typing import NamedTuple

from .directory import Directory
from .system import exchange, is_unreliable, write_all

if sys.platform == "linux":
    import fcntl

    from .system import fcntl_at_once

# What kernels and file systems answer that cannot exchange names; EPERM is a container's way to say it.
CANNOT_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM})
_PRIVATE_FILE = stat.S_IFREG | 0o600


class Spare(NamedTuple):
    """A file that nobody needs any more, open for writing."""

    descriptor: int
    size: int

    def overwrite(self, blob: bytes) -> None:
        """It holds these bytes then, and none of the old ones."""
        write_all(self.descriptor, blob)
        if self.size > len(blob):
            os.truncate(self.descriptor, len(blob))


class Recycler:
    """Finds out by trying whether kernel, file system and rights allow it; if not, it never tries again."""

    def __init__(self, directory: Directory, *, allowed: bool) -> None:
        self._directory = directory
        self._user = os.geteuid()
        # On a network a lease knows nothing of readers on other machines.
        allowed = allowed and sys.platform == "linux" and not is_unreliable(directory.file_system)
        # Under pyfakefs `os` is a stand-in, and the calls that it does not know would reach the real disk.
        self._works = allowed and isinstance(os, types.ModuleType)

    def open_spare(self, name: str) -> Spare | None:
        """The file of this name, to be overwritten; None if it must be left alone this time."""
        if not self._works:
            return None
        try:
            flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=self._directory.descriptor)
        except OSError:
            return None
        spare: Spare | None = None
        try:
            status = os.fstat(descriptor)
            ours = status.st_mode == _PRIVATE_FILE and status.st_uid == self._user
            if ours and status.st_nlink == 1 and self._is_unread(descriptor):
                spare = Spare(descriptor, status.st_size)
        finally:
            if spare is None:
                os.close(descriptor)
        return spare

    def exchange(self, one: str, other: str) -> bool:
        """Let two names change files. False if that cannot be done; nothing has changed then."""
        try:
            exchange(self._directory.descriptor, one, other)
        except FileNotFoundError:  # removed by hand: there is nothing to exchange with
            return False
        except OSError as error:
            if error.errno not in CANNOT_EXCHANGE:
                raise
            self._works = False
            return False
        return True

    def _is_unread(self, descriptor: int) -> bool:
        """A write lease is granted only if no other descriptor has the file open."""
        try:
            # Whoever opens the file while it is leased makes the kernel send SIGIO, which kills; SIGURG does not.
            fcntl_at_once(descriptor, fcntl.F_SETSIG, signal.SIGURG)
            fcntl_at_once(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl_at_once(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError:
            return False  # somebody reads it: this time into a new file
        except OSError:
            self._works = False  # no leases on this file system, or not for this user
            return False
        return True
