"""Makes the checks of an agent that opens a directory in advance, with stat alone.

They are made for the directory's owner, whichever user runs the tool: root can read what the agent cannot. Only
failures that are certain are reported, because supplementary groups and ACLs, which may grant access, are not examined.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from checkpointmanager._format.names import LOCK

from . import words
from .agentuser import ROOT, AgentUser

_READ, _WRITE, _ENTER = 4, 2, 1


class Refusal(NamedTuple):
    """Why the agent will not work here, and the command that fixes it."""

    path: str
    reason: str
    detail: str
    meaning: str
    next: str


def refusals_of(path: str, folder: int, user: AgentUser) -> Iterator[Refusal]:
    """What prevents the agent from opening the directory."""
    status = os.fstat(folder)
    quoted = words.quoted(path)
    if status.st_mode & stat.S_IWOTH:
        detail = f"every user can write to it (mode {stat.S_IMODE(status.st_mode):04o})"
        meaning = "The agent refuses to open this directory, unless it was configured to allow that"
        yield Refusal(path, "insecure", detail, meaning, f"chmod o-w {quoted}")
    if _cannot(status, user, _READ | _WRITE | _ENTER):
        detail = f"{user} may not read, write and enter it ({_rights(status)})"
        meaning = "The agent cannot open this directory, so it does not start"
        yield Refusal(path, "no-access", detail, meaning, _mend(status, user, quoted, "u+rwx"))
    with suppress(OSError):
        lock = os.stat(LOCK, dir_fd=folder, follow_symlinks=False)
        place = os.path.join(path, LOCK)
        if not stat.S_ISREG(lock.st_mode):
            detail = "something other than a file has the name of the lock file"
            meaning = "The agent refuses to open this directory"
            yield Refusal(place, "insecure", detail, meaning, f"mv -n {words.quoted(place)} /root/")
        elif _cannot(lock, user, _READ | _WRITE):
            detail = f"{user} may not read and write the lock file ({_rights(lock)})"
            meaning = "The agent cannot take its lock, so it does not start"
            yield Refusal(place, "no-access", detail, meaning, _mend(lock, user, words.quoted(place), "u+rw"))


def refusal_of_file(path: str, status: os.stat_result, user: AgentUser) -> Refusal | None:
    """Why the agent cannot read a whole checkpoint; None if it can."""
    if not _cannot(status, user, _READ):
        return None
    detail = f"{user}, who owns the directory, may not read it ({_rights(status)})"
    meaning = "The agent cannot read this checkpoint, and treats it like a damaged one"
    return Refusal(path, "no-access", detail, meaning, _mend(status, user, words.quoted(path), "u+r"))


def _cannot(status: os.stat_result, user: AgentUser, wanted: int) -> bool:
    if user.uid == ROOT:
        return False
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid == user.uid:
        return mode >> 6 & wanted != wanted
    if status.st_gid == user.gid:
        return mode >> 3 & wanted != wanted
    return (mode >> 3 | mode) & wanted != wanted  # the user may also be in the file's group


def _mend(status: os.stat_result, user: AgentUser, quoted: str, mode: str) -> str:
    if status.st_uid == user.uid:
        return f"chmod {mode} {quoted}"
    return f"chown {user.uid}:{user.gid} {quoted}"


def _rights(status: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(status.st_mode):04o}, user {status.st_uid}, group {status.st_gid}"
