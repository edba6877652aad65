"""The user whose directory it is: root repairs as that user, so that all files are made as the agent makes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from checkpointmanager._format.names import LOCK

ROOT = 0


class AgentUser(NamedTuple):
    """A user and a group, by number."""

    uid: int
    gid: int

    def __str__(self) -> str:
        return f"user {self.uid}"


def agent_user(directory: str | int) -> AgentUser:
    """Who owns the directory (a path or a descriptor); if that is root, who made its lock file.

    A volume that Kubernetes gives to a group belongs to root, while the agent that works there does not run as root.
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
    """For root: be the agent's user inside the block. Gives None to everybody else, and where the agent is root."""
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
