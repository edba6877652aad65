"""What the operating system tells and does differently from place to place."""

from __future__ import annotations

import errno
import os
import sys
import types
from contextlib import suppress

# What kernels and file systems answer that cannot exchange names; EPERM is a container's way to say it.
CANNOT_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM})

if sys.platform == "darwin":
    import fcntl

    def sync(descriptor: int) -> None:
        """Force to the platter: on macOS fsync alone stops at the drive's cache."""
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError:  # some file systems there know only fsync
            os.fsync(descriptor)

else:

    def sync(descriptor: int) -> None:
        """Force to the disk. Never repeated after a failure: the kernel then forgets what was lost."""
        os.fsync(descriptor)


def sync_data(descriptor: int) -> None:
    """The same for the bytes of a file, and its size if that has changed; without its times."""
    os.fdatasync(descriptor)


def write_all(descriptor: int, blob: bytes) -> None:
    """A write may be short (a full disk, a limit, a signal): go on until all is written or an error says why."""
    written = os.write(descriptor, blob)
    while written < len(blob):
        written += os.write(descriptor, memoryview(blob)[written:])


def will_need(descriptor: int, size: int) -> None:
    """Let the kernel begin to read this file, without waiting; nothing where it does not take such hints."""
    # Under pyfakefs `os` is a stand-in, and its descriptors mean nothing to the kernel.
    if isinstance(os, types.ModuleType) and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_WILLNEED)


FORGETFUL = frozenset({"tmpfs", "ramfs", "overlay", "aufs", "devtmpfs"})
_UNRELIABLE = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "lustre", "gpfs", "beegfs", "orangefs"),
        *("virtiofs", "vboxsf", "vmhgfs", "prl_fs"),  # the host's, seen from a guest
    }
)


def is_unreliable(file_system: str) -> bool:
    """On the network, or a program's own (fuse, fuseblk, fuse.sshfs): what a sync or a lock means is up to others."""
    return file_system in _UNRELIABLE or file_system.partition(".")[0] in ("fuse", "fuseblk")


def file_system_of(device: int) -> str:
    """The type of the file system with this device number, or "" where the kernel does not tell."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            # 36 35 98:0 /root /mount options shared:1 - ext4 /dev/sda1 options
            fields = line.split()
            if len(fields) > 2 and fields[2] == wanted and "-" in fields:
                return fields[fields.index("-") + 1]
    return ""


def has_fast_commit(device: int) -> bool:
    """True for ext4 with the feature fast_commit, which kernels up to now replay with losses."""
    # The kernel shows the feature by the name of the debug option that also sets it.
    return not {"fast_commit", "fc_debug_force"}.isdisjoint(_ext4_options(device))


def keeps_order(file_system: str, device: int) -> bool:
    """True where changes of names become durable in the order in which they were made, and that has been tried.

    Of ext4 that needs the journal: only with one the kernel shows how data is journaled.
    """
    if file_system == "xfs":
        return True
    options = _ext4_options(device) if file_system == "ext4" else []
    return any(option.startswith("data=") for option in options) and not has_fast_commit(device)


def _ext4_options(device: int) -> list[str]:
    """Those of the file system with this device number; none where the kernel does not tell."""
    with suppress(OSError):
        name = os.path.basename(os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
        with open(f"/proc/fs/ext4/{name}/options", encoding="utf-8", errors="replace") as options:
            return options.read().split()
    return []


if sys.platform == "linux":
    import ctypes
    import fcntl

    _GETFLAGS = 0x80086601  # FS_IOC_GETFLAGS
    _INLINE_DATA = 0x10000000  # EXT4_INLINE_DATA_FL
    _renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # glibc 2.28 and later
    _fcntl = ctypes.PyDLL(None, use_errno=True).fcntl

    def fcntl_at_once(descriptor: int, command: int, argument: int) -> None:
        """fcntl for what takes less time than to let another thread run meanwhile, and to wait for its end."""
        if _fcntl(descriptor, command, argument) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def is_inline(descriptor: int) -> bool:
        """True if ext4 keeps the bytes in the inode: fdatasync of as many bytes as before is not durable then."""
        try:
            flags = fcntl.ioctl(descriptor, _GETFLAGS, bytes(8))
        except OSError as error:
            if error.errno in (errno.ENOTTY, errno.ENOTSUP, errno.EOPNOTSUPP):  # a file system that has no such flags
                return False
            raise
        return bool(int.from_bytes(flags[:4], sys.byteorder) & _INLINE_DATA)

    def exchange(directory: int, one: str, other: str) -> None:
        """Let two names of one directory change files, in one step; OSError where kernel or file system cannot."""
        # Under pyfakefs `os` is a stand-in, and this would reach the real disk.
        if _renameat2 is None or not isinstance(os, types.ModuleType):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if _renameat2(directory, one.encode(), directory, other.encode(), _RENAME_EXCHANGE):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

else:

    def exchange(directory: int, one: str, other: str) -> None:
        """Only Linux can."""
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


_RENAME_EXCHANGE = 2
