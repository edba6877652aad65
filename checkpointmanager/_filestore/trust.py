"""Whether only root and the agent's own user decide which directory a path leads to.

sshd and systemd ask the same: who can change a folder can replace everything below it, also with a link to elsewhere.
"""

from __future__ import annotations

import os
import stat
import types

MAX_LINKS = 40  # as the kernel


def distrust(path: str) -> str:
    """Why the way to this directory cannot be trusted, or "". Judges neither it nor what does not exist yet."""
    if not isinstance(os, types.ModuleType):  # pyfakefs, whose folders anybody may write to
        return ""
    todo = _parts(path)
    here, links = "/", 0
    while todo:
        if why := insecurity(os.stat(here)):
            return f"on the way to it, {here}: {why}"
        name = todo.pop()
        if name == "..":
            here = os.path.dirname(here)
            continue
        try:
            status = os.lstat(os.path.join(here, name))
        except FileNotFoundError:
            return ""
        if not stat.S_ISLNK(status.st_mode):
            here = os.path.join(here, name)
            continue
        links += 1
        if links > MAX_LINKS:
            return "there are too many links on the way to it"
        if status.st_uid not in (0, os.geteuid()):
            return f"a link on the way to it belongs to user {status.st_uid}: {os.path.join(here, name)}"
        target = os.readlink(os.path.join(here, name))
        todo += _parts(target)
        here = "/" if target.startswith("/") else here
    return ""


def insecurity(status: os.stat_result) -> str:
    """Why a folder lets other users replace what is in it, or "". With the sticky bit, nobody replaces ours."""
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        return f"every user can write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {status.st_uid}, who is neither this user ({os.geteuid()}) nor root"
    return ""


def _parts(path: str) -> list[str]:
    """The names on the way, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]
