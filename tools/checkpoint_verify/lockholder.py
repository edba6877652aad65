"""Who holds a directory's lock, learned without touching it: from `.lock`'s text and the kernel's own list."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from checkpointmanager.filestore.holder import Holder
from checkpointmanager.filestore.names import LOCK
from checkpointmanager.filestore.ownership import MAX_HOLDER_BYTES

from . import words

_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # the kernel's fixed number for the host's own


class Held(StrEnum):
    """Whether somebody has the lock now."""

    HELD = "held"
    FREE = "free"
    UNKNOWN = "unknown"  # the kernel shows only the locks of processes that can be seen from here
    ABSENT = "absent"  # there is no lock file


@dataclass(frozen=True, slots=True)
class LockState:
    """`pids` are the kernel's word; `holder` is what the last one to take the lock wrote about itself."""

    held: Held
    pids: tuple[int, ...] = ()
    holder: Holder | None = None

    def __str__(self) -> str:
        who = words.shown(str(self.holder)) if self.holder else "somebody who left no name"
        if self.held is Held.HELD:
            seen = ", ".join(map(str, self.pids))
            told = self.holder is not None and self.holder.pid in self.pids
            return f"held by {who}" if told else f"held by pid {seen} (the lock file says: {who})"
        if self.held is Held.FREE:
            return f"free; last held by {who}"
        if self.held is Held.UNKNOWN:
            return f"perhaps held by {who} (locks of other containers cannot be seen from here)"
        return "no lock file"


def lock_state(folder: int) -> LockState:
    """The lock of an open directory. Takes no lock itself, so it can never be in an agent's way."""
    try:
        status = os.stat(LOCK, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return LockState(Held.ABSENT)
    holder = _holder(folder) if stat.S_ISREG(status.st_mode) else None
    pids = _pids_with_lock_on(status, holder)
    if pids:
        return LockState(Held.HELD, pids, holder)
    return LockState(Held.FREE if pids is not None and _sees_all() else Held.UNKNOWN, (), holder)


def _holder(folder: int) -> Holder | None:
    with suppress(OSError):
        descriptor = os.open(LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            return Holder.parse(os.read(descriptor, MAX_HOLDER_BYTES))
        finally:
            os.close(descriptor)
    return None


def _pids_with_lock_on(status: os.stat_result, holder: Holder | None) -> tuple[int, ...] | None:
    """The kernel's list has lines like: 1: FLOCK  ADVISORY  WRITE 4711 fe:00:2361567 0 EOF"""
    device, inode = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", str(status.st_ino)
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as locks:
            rows = [fields for line in locks if len(fields := line.split()) > 5 and fields[1] != "->"]  # -> waits
    except OSError:
        return None
    found = [(int(row[4]), row[5].rpartition(":")) for row in rows]
    pids = tuple(pid for pid, (where, _, number) in found if (where, number) == (device, inode))
    # btrfs and overlay show another device here than stat does; then the inode and the name it left must do.
    return pids or tuple(pid for pid, (_, _, number) in found if holder and (pid, number) == (holder.pid, inode))


def _sees_all() -> bool:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    return False
