"""Writing the new generation over the file of the one before, instead of into a new file.

A rename that replaces a file frees an inode, which is the dearest part of a write. When two names only change
files nothing is freed: the spare, which is the previous generation's file, is overwritten and synced, and then
trades places with the current one. That leaves the previous generation where it belongs for free.

    open        .previous-key                     the spare
    fstat       one link, a regular file          else a killed writer left both names on one inode
    fcntl       take and give back a lease        granted only if nobody else has it open: no reader is cut
    write, (ftruncate,) fdatasync, close
    renameat2   .previous-key <-> key.json        the commit
    fsync       the directory

The spare may be overwritten only when the exchange that made it the spare is durable, or else the disk may still
call it the current checkpoint. So only for keys whose last write by this owner was acknowledged (Current.OURS),
and never where directories are shared or not synced.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import types

from .directory import Directory

# What kernels and file systems answer that cannot exchange names, or give no leases.
UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.ENOTTY})


def is_possible() -> bool:
    """On Linux with its real calls: under pyfakefs they would reach the real disk."""
    return sys.platform == "linux" and isinstance(os, types.ModuleType)


if sys.platform == "linux":
    import fcntl

    def open_spare(directory: Directory, name: str) -> int | None:
        """A descriptor for overwriting the spare, or None if it must be left alone this time."""
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=directory.descriptor)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and _is_unread(descriptor):
                return descriptor
        except OSError:
            pass
        os.close(descriptor)
        return None

    def _is_unread(descriptor: int) -> bool:
        """A write lease is granted only if no other descriptor has the file open."""
        # Whoever opens the file while it is leased makes the kernel send SIGIO, which kills; SIGURG is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except BlockingIOError:
            return False
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True

else:

    def open_spare(directory: Directory, name: str) -> int | None:
        return None
