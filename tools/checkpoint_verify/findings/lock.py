"""Finds the process that holds a directory's lock from the text of `.lock` and the kernel's list, without locking."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from checkpointmanager.format import LOCK, MAX_LOCK_TEXT_BYTES, LockOwner

from ..screens import phrases
from . import disk

_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # the kernel's fixed number for the host's namespace


class Held(StrEnum):
    """Whether a process has the lock now."""

    HELD = "held"
    FREE = "free"
    UNKNOWN = "unknown"  # the kernel shows only locks of processes that are visible from here
    ABSENT = "absent"  # there is no lock file


@dataclass(frozen=True, slots=True)
class LockState:
    """`pids` come from the kernel; `owner` is what the last owner wrote about itself into the lock file."""

    held: Held
    pids: tuple[int, ...] = ()
    owner: LockOwner | None = None

    def __str__(self) -> str:
        who = phrases.shown(str(self.owner)) if self.owner else "a process that left no name"
        if self.held is Held.HELD:
            seen = ", ".join(map(str, self.pids))
            agrees = self.owner is not None and self.owner.pid in self.pids
            return f"held by {who}" if agrees else f"held by pid {seen} (the lock file says: {who})"
        if self.held is Held.FREE:
            return f"free; last held by {who}"
        if self.held is Held.UNKNOWN:
            return f"perhaps held by {who} (locks of other containers are not visible from here)"
        return "no lock file"


elsewhere: dict[tuple[int, int], LockState] = {}  # by device and inode: locks outside the kernel, such as etcd's


def lock_state(folder: int) -> LockState:
    """The lock of an open directory. Takes no lock itself, so it never blocks an agent."""
    try:
        status = os.stat(LOCK, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return LockState(Held.ABSENT)
    if known := elsewhere.get((status.st_dev, status.st_ino)):
        return known
    owner = _owner_in(folder) if stat.S_ISREG(status.st_mode) else None
    pids = _pids_with_lock_on(status, owner)
    if pids:
        return LockState(Held.HELD, pids, owner)
    return LockState(Held.FREE if pids is not None and _sees_all() else Held.UNKNOWN, (), owner)


def lock_of(directory: str) -> LockState:
    try:
        descriptor = disk.open_folder(directory)
    except OSError:
        return LockState(Held.ABSENT)
    try:
        return lock_state(descriptor)
    finally:
        os.close(descriptor)


def _owner_in(folder: int) -> LockOwner | None:
    with suppress(OSError):
        descriptor = os.open(LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            return LockOwner.parse(os.read(descriptor, MAX_LOCK_TEXT_BYTES))
        finally:
            os.close(descriptor)
    return None


def _pids_with_lock_on(status: os.stat_result, owner: LockOwner | None) -> tuple[int, ...] | None:
    """The kernel's list has lines such as: 1: FLOCK  ADVISORY  WRITE 4711 fe:00:2361567 0 EOF"""
    device, inode = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}", str(status.st_ino)
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as locks:
            rows = [fields for line in locks if len(fields := line.split()) > 5 and fields[1] != "->"]  # -> waits
    except OSError:
        return None
    # Each once: a list that changes while it is read may repeat a line.
    found = dict.fromkeys((int(row[4]), row[5].rpartition(":")) for row in rows)
    pids = tuple(pid for pid, (where, _, number) in found if (where, number) == (device, inode))
    # btrfs and overlay show a different device here than stat does; then match inode and pid of the lock file.
    return pids or tuple(pid for pid, (_, _, number) in found if owner and (pid, number) == (owner.pid, inode))


def _sees_all() -> bool:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    return False
