"""Makes the checks of an agent that opens a directory in advance, with stat alone; and acts as the agent's user.

The checks are made for the directory's owner, whichever user runs the tool: root can read what the agent cannot. Only
failures that are certain are reported, because supplementary groups and ACLs, which may grant access, are not examined.
Root repairs as the owner, so new files look as if the agent made them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from checkpointmanager.format import LOCK

from ..screens import phrases
from .problem import Problem, Severity

_READ, _WRITE, _ENTER = 4, 2, 1

ROOT = 0


class AgentUser(NamedTuple):
    """A user and a group, by number."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"user {self.uid}"


def agent_user(directory: str | int) -> AgentUser:
    """The owner of the directory (a path or a descriptor); if that is root, the owner of its lock file.

    A volume that Kubernetes gives to a group belongs to root, although the agent that uses it does not run as root.
    """
    status = os.stat(directory)
    if status.st_uid == ROOT:
        with suppress(OSError):
            status = _lock_status(directory)
    return AgentUser(status.st_uid, status.st_gid)


def _lock_status(directory: str | int) -> os.stat_result:
    if isinstance(directory, int):
        return os.stat(LOCK, dir_fd=directory, follow_symlinks=False)
    return os.lstat(os.path.join(directory, LOCK))


@contextmanager
def acting_as_agent(directory: str) -> Iterator[AgentUser | None]:
    """Root acts as the agent's user inside the block. Yields None for other users, and if the agent is root."""
    user = agent_user(directory) if os.geteuid() == ROOT else None
    if user is None or user.uid == ROOT:
        yield None
        return
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


def refusals_of(path: str, folder: int, user: AgentUser) -> Iterator[Problem]:
    """What prevents the agent from opening the directory."""
    status = os.fstat(folder)
    if status.st_mode & stat.S_IWOTH:
        detail = f"every user can write to it (mode {stat.S_IMODE(status.st_mode):04o})"
        meaning = "The agent refuses to open this directory, unless it was configured to allow that"
        yield _refusal(path, "insecure", detail, meaning, "chmod o-w")
    if _cannot(status, user, _READ | _WRITE | _ENTER):
        detail = f"{user} may not read, write and enter it ({_rights(status)})"
        meaning = "The agent cannot open this directory, so it does not start"
        yield _refusal(path, "no-access", detail, meaning, _mend(status, user, "u+rwx"))
    with suppress(OSError):
        lock = os.stat(LOCK, dir_fd=folder, follow_symlinks=False)
        place = os.path.join(path, LOCK)
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
