"""The agent of a directory: who holds its lock, as which user it runs, and whether it will open the directory.

The holder comes from the text of `.lock` and the kernel's list, without locking. The checks are made with stat alone,
for the directory's owner, whichever user runs the tool: root can read what the agent cannot. Only failures that are
certain are reported, because supplementary groups and ACLs, which may grant access, are not examined.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from checkpointmanager.format import LOCK, MAX_LOCK_TEXT_BYTES, LockOwner

from ..etcd import SCHEME
from ..screens import phrases
from . import disk
from .problem import Problem, Severity

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

    @property
    def may_be_held(self) -> bool:
        return self.held in (Held.HELD, Held.UNKNOWN)

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


def lock_of(directory: str) -> LockState:
    """The lock of a directory. Takes no lock itself, so it never blocks an agent."""
    path = os.path.join(directory, LOCK)
    try:
        status = os.lstat(path)
    except OSError:
        return LockState(Held.ABSENT)
    owner = LockOwner.parse(disk.blob_of(path)[:MAX_LOCK_TEXT_BYTES])
    if directory.startswith(SCHEME):  # a lock that exists is held: etcd deletes it with its owner's lease
        return LockState(Held.HELD, (owner.pid,) if owner else (), owner)
    pids = _pids_with_lock_on(status, owner)
    if pids:
        return LockState(Held.HELD, pids, owner)
    return LockState(Held.FREE if pids is not None and _sees_all() else Held.UNKNOWN, (), owner)


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


_READ, _WRITE, _ENTER = 4, 2, 1
ROOT = 0


class AgentUser(NamedTuple):
    """A user and a group, by number."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"user {self.uid}"


def agent_user(directory: str) -> AgentUser:
    """The owner of the directory; if that is root, the owner of its lock file.

    A volume that Kubernetes gives to a group belongs to root, although the agent that uses it does not run as root.
    """
    status = os.stat(directory)
    if status.st_uid == ROOT:
        with suppress(OSError):
            status = os.lstat(os.path.join(directory, LOCK))
    return AgentUser(status.st_uid, status.st_gid)


@contextmanager
def acting_as_agent(directory: str) -> Iterator[AgentUser | None]:
    """Root acts as the agent's user inside the block. Yields None for other users, and if the agent is root."""
    user = agent_user(directory) if os.geteuid() == ROOT else None
    if user is None or user.uid == ROOT:
        yield None
        return
    import filelock  # noqa: F401, PLC0415  (the store imports it late, and that user may not read root's libraries)

    group, groups = os.getegid(), os.getgroups()
    try:
        os.setgroups([user.gid])
        os.setegid(user.gid)
        os.seteuid(user.uid)
        yield user
    finally:
        os.seteuid(ROOT)
        os.setegid(group)
        os.setgroups(groups)


def refusals_of(path: str, user: AgentUser) -> Iterator[Problem]:
    """What prevents the agent from opening the directory."""
    status = os.stat(path)
    if status.st_mode & stat.S_IWOTH:
        detail = f"every user can write to it (mode {stat.S_IMODE(status.st_mode):04o})"
        meaning = "The agent refuses to open this directory, unless it was configured to allow that"
        yield _refusal(path, "insecure", detail, meaning, "chmod o-w")
    if _cannot(status, user, _READ | _WRITE | _ENTER):
        detail = f"{user} may not read, write and enter it ({_rights(status)})"
        meaning = "The agent cannot open this directory, so it does not start"
        yield _refusal(path, "no-access", detail, meaning, _mend(status, user, "u+rwx"))
    with suppress(OSError):
        place = os.path.join(path, LOCK)
        lock = os.lstat(place)
        if not stat.S_ISREG(lock.st_mode):
            detail = "something other than a file has the name of the lock file"
            meaning = "The agent refuses to open this directory"
            step = phrases.move_away(place)
            yield Problem(Severity.UNUSABLE, place, "", "insecure", detail, meaning, step)
        elif _cannot(lock, user, _READ | _WRITE):
            detail = f"{user} may not read and write the lock file ({_rights(lock)})"
            meaning = "The agent cannot take its lock, so it does not start"
            yield _refusal(place, "no-access", detail, meaning, _mend(lock, user, "u+rw"))


def refusal_of_file(path: str, key: str, status: os.stat_result, user: AgentUser) -> Problem | None:
    """Why the agent cannot read a whole checkpoint; None if it can."""
    if not _cannot(status, user, _READ):
        return None
    detail = f"{user}, who owns the directory, may not read it ({_rights(status)})"
    meaning = "The agent cannot read this checkpoint, and treats it like a damaged one"
    return _refusal(path, "no-access", detail, meaning, _mend(status, user, "u+r"), key=key)


def _refusal(path: str, reason: str, detail: str, meaning: str, mend: str, *, key: str = "") -> Problem:
    step = f"{mend} {phrases.quoted(path)}"
    return Problem(Severity.UNUSABLE, path, key, reason, detail, meaning, step, mend=mend)


def _cannot(status: os.stat_result, user: AgentUser, wanted: int) -> bool:
    if user.uid == ROOT:
        return False
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid == user.uid:
        return mode >> 6 & wanted != wanted
    if status.st_gid == user.gid:
        return mode >> 3 & wanted != wanted
    return (mode >> 3 | mode) & wanted != wanted  # the user may also be in the file's group


def _mend(status: os.stat_result, user: AgentUser, mode: str) -> str:
    """The command that lets the user in, without the path."""
    return f"chmod {mode}" if status.st_uid == user.uid else f"chown {user.uid}:{user.gid}"


def _rights(status: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(status.st_mode):04o}, user {status.st_uid}, group {status.st_gid}"
