"""System calls and facts that differ between platforms and file systems."""

from __future__ import annotations

import errno
import os
import sys
import types

from .._events import EventKind
from .._interruption import ignored, pass_on_interruption

EXPECTED_BYTES = 1 << 20  # of a file that will be read soon; the kernel itself reads ahead the rest
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})  # the errors of a full disk

if sys.platform != "win32":
    import fcntl

if sys.platform == "darwin":

    def sync(descriptor: int) -> None:
        """Force to the platter: on macOS fsync alone stops at the drive's cache."""
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:  # some file systems support only fsync
            pass_on_interruption(error)
            os.fsync(descriptor)

else:

    def sync(descriptor: int) -> None:
        """Force to the disk. Never repeated after a failure: the kernel has forgotten what it lost."""
        os.fsync(descriptor)


def sync_data(descriptor: int) -> None:
    """Like sync, for the bytes of a file and its size if that has changed, but not its times."""
    os.fdatasync(descriptor) if hasattr(os, "fdatasync") else sync(descriptor)


def try_lock(descriptor: int) -> bool:
    """Take the kernel's exclusive lock of a file; False if another process or descriptor holds it."""
    from filelock import lock_descriptor  # noqa: PLC0415  (a program that opens no directory need not wait for it)

    return lock_descriptor(descriptor, blocking=False)


def unlock(descriptor: int) -> None:
    """Give the lock back."""
    from filelock import unlock_descriptor  # noqa: PLC0415

    unlock_descriptor(descriptor)


def is_locked(descriptor: int) -> bool:
    """True if another process, or another descriptor, holds the exclusive lock of this file."""
    if not isinstance(os, types.ModuleType):  # pyfakefs, whose descriptors mean nothing to the kernel
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def write_all(descriptor: int, blob: bytes) -> None:
    """Write everything, or raise: a single write may be short (a full disk, a limit, a signal)."""
    written = os.write(descriptor, blob)
    while written < len(blob):
        written += os.write(descriptor, memoryview(blob)[written:])


def will_need(descriptor: int) -> None:
    """Let the kernel start reading this file, without waiting; does nothing if the system has no such call."""
    # Under pyfakefs `os` is a stand-in, and its descriptors mean nothing to the kernel.
    if isinstance(os, types.ModuleType) and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, EXPECTED_BYTES, os.POSIX_FADV_WILLNEED)


FORGETFUL = frozenset({"tmpfs", "ramfs", "overlay", "aufs", "devtmpfs"})
_UNRELIABLE = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "lustre", "gpfs", "beegfs", "orangefs"),
        *("virtiofs", "vboxsf", "vmhgfs", "prl_fs"),  # the host's file system, seen from a guest
    }
)


def shortcoming(file_system: str, device: int) -> tuple[EventKind, str] | None:
    """What an owner should know about the file system of its directory."""
    if file_system in FORGETFUL:
        detail = f"{file_system} does not survive a reboot, so neither does what is written here"
        return EventKind.FORGETFUL_FILE_SYSTEM, detail
    if is_unreliable(file_system):
        detail = f"{file_system} may report a sync or a lock that it did not make; use a local disk"
        return EventKind.UNRELIABLE_FILE_SYSTEM, detail
    if file_system == "ext4" and has_fast_commit(device):
        detail = "ext4 with fast_commit may lose what was synced; turn it off: tune2fs -O ^fast_commit"
        return EventKind.UNRELIABLE_FILE_SYSTEM, detail
    return None


def is_unreliable(file_system: str) -> bool:
    """On the network or in user space (fuse, fuseblk, fuse.sshfs): others decide what a sync or a lock means."""
    return file_system in _UNRELIABLE or file_system.partition(".")[0] in ("fuse", "fuseblk")


def file_system_of(device: int) -> str:
    """The type of the file system with this device number, or "" if the kernel does not say."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with ignored(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
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


def _ext4_options(device: int) -> list[str]:
    """The options of the file system with this device number; empty if the kernel does not say."""
    with ignored(OSError):
        name = os.path.basename(os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
        with open(f"/proc/fs/ext4/{name}/options", encoding="utf-8", errors="replace") as options:
            return options.read().split()
    return []
