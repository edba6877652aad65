"""The agent's user, who owns the directory. Root repairs as that user, so new files look as if the agent made them."""

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
