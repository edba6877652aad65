"""System calls and facts that differ between platforms and file systems."""

from __future__ import annotations

import errno
import os
import sys
import types
from contextlib import suppress

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})  # the errors of a full disk
# The errors of kernels and file systems that cannot exchange names; EPERM comes from containers.
CANNOT_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM})

if sys.platform == "darwin":
    import fcntl

    def sync(descriptor: int) -> None:
        """Force to the platter: on macOS fsync alone stops at the drive's cache."""
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError:  # some file systems support only fsync
            os.fsync(descriptor)

else:

    def sync(descriptor: int) -> None:
        """Force to the disk. Never repeated after a failure: the kernel has forgotten what it lost."""
        os.fsync(descriptor)


def sync_data(descriptor: int) -> None:
    """Like sync, for the bytes of a file and its size if that has changed, but not its times."""
    os.fdatasync(descriptor)


def write_all(descriptor: int, blob: bytes) -> None:
    """Write everything, or raise: a single write may be short (a full disk, a limit, a signal)."""
    written = os.write(descriptor, blob)
    while written < len(blob):
        written += os.write(descriptor, memoryview(blob)[written:])


def will_need(descriptor: int, size: int) -> None:
    """Let the kernel start reading this file, without waiting; does nothing if the system has no such call."""
    # Under pyfakefs `os` is a stand-in, and its descriptors mean nothing to the kernel.
    if isinstance(os, types.ModuleType) and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_WILLNEED)


FORGETFUL = frozenset({"tmpfs", "ramfs", "overlay", "aufs", "devtmpfs"})
_UNRELIABLE = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "lustre", "gpfs", "beegfs", "orangefs"),
        *("virtiofs", "vboxsf", "vmhgfs", "prl_fs"),  # the host's file system, seen from a guest
    }
)


def is_unreliable(file_system: str) -> bool:
    """On the network or in user space (fuse, fuseblk, fuse.sshfs): others decide what a sync or a lock means."""
    return file_system in _UNRELIABLE or file_system.partition(".")[0] in ("fuse", "fuseblk")


def file_system_of(device: int) -> str:
    """The type of the file system with this device number, or "" if the kernel does not say."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            # 36 35 98:0 /root /mount options shared:1 - ext4 /dev/sda1 options
            fields = line.split()
            if len(fields) > 2 and fields[2] == wanted and "-" in fields:
                return fields[fields.index("-") + 1]
    return ""


def has_fast_commit(device: int) -> bool:
    """True for ext4 with the feature fast_commit: kernels have lost data when they replayed it."""
    # The kernel shows the feature under the name of the debug option that also sets it.
    return not {"fast_commit", "fc_debug_force"}.isdisjoint(_ext4_options(device))


def keeps_order(file_system: str, device: int) -> bool:
    """True for file systems tested to make changes of names durable in the order in which they happened.

    ext4 needs its journal for that. The kernel shows the option data= if there is a journal.
    """
    if file_system == "xfs":
        return True
    options = _ext4_options(device) if file_system == "ext4" else []
    return any(option.startswith("data=") for option in options) and not has_fast_commit(device)


def _ext4_options(device: int) -> list[str]:
    """The options of the file system with this device number; empty if the kernel does not say."""
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
        """fcntl without releasing the interpreter lock, for calls shorter than handing the lock over and back."""
        if _fcntl(descriptor, command, argument) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def is_inline(descriptor: int) -> bool:
        """True if ext4 keeps the bytes in the inode: then fdatasync after a same-size overwrite is not durable."""
        try:
            flags = fcntl.ioctl(descriptor, _GETFLAGS, bytes(8))
        except OSError as error:
            if error.errno in (errno.ENOTTY, errno.ENOTSUP, errno.EOPNOTSUPP):  # a file system without such flags
                return False
            raise
        return bool(int.from_bytes(flags[:4], sys.byteorder) & _INLINE_DATA)

    def exchange(directory: int, one: str, other: str) -> None:
        """Swap the files of two names in one directory atomically. Raises OSError if the system cannot."""
        # Under pyfakefs `os` is a stand-in, and this would reach the real disk.
        if _renameat2 is None or not isinstance(os, types.ModuleType):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if _renameat2(directory, one.encode(), directory, other.encode(), _RENAME_EXCHANGE):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

else:

    def exchange(directory: int, one: str, other: str) -> None:
        """Only Linux can exchange names."""
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


_RENAME_EXCHANGE = 2
