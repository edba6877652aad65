"""Owner, group, mode and security label of files that root writes into the directory of somebody else.

Set on the open file before it gets its name, so that the agent never meets a checkpoint that it may not read.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass

# The label of SELinux or Smack, and access lists: whatever decides who may read a file.
_LABELS = ("security.selinux", "security.SMACK64", "system.posix_acl_access")
_NO_LABELS = frozenset({errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.ENOSYS})
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a file must have for those to read it who read its forerunner."""

    uid: int
    gid: int
    mode: int
    labels: dict[str, bytes]

    def give_to(self, descriptor: int) -> None:
        """Raises OSError if the file cannot be made what it must be; a label that is there already is left."""
        status = os.fstat(descriptor)
        if (status.st_uid, status.st_gid) != (self.uid, self.gid):
            os.fchown(descriptor, self.uid, self.gid)
        if stat.S_IMODE(status.st_mode) != self.mode:
            os.fchmod(descriptor, self.mode)
        for name, value in self.labels.items():
            if _label(descriptor, name) != value:
                os.setxattr(descriptor, name, value)


def attributes_of(name: str, folder: int) -> Attributes:
    """Those of the file that is to be replaced; of its directory where there is no such file.

    A file of root in a directory of somebody else is a stranger there, most likely left by an earlier
    repair by hand. Then the directory's owner is the better one.
    """
    around = os.fstat(folder)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return Attributes(around.st_uid, around.st_gid, _PRIVATE, {})
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Attributes(around.st_uid, around.st_gid, _PRIVATE, {})
        labels = {label: value for label in _LABELS if (value := _label(descriptor, label)) is not None}
    finally:
        os.close(descriptor)
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if status.st_uid == 0 != around.st_uid:
        return Attributes(around.st_uid, around.st_gid, mode, labels)
    return Attributes(status.st_uid, status.st_gid, mode, labels)


def hand_over(name: str, folder: int) -> None:
    """Give a file or folder that root has just made to the owner of the directory; does nothing for others."""
    around = os.fstat(folder)
    if os.geteuid() != 0 or around.st_uid == 0:
        return
    with suppress(FileNotFoundError):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            status = os.fstat(descriptor)
            alone = stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
            if status.st_uid == 0 and alone:  # a second name could be one of root's own files
                os.fchown(descriptor, around.st_uid, around.st_gid)
        finally:
            os.close(descriptor)


def _label(descriptor: int, name: str) -> bytes | None:
    try:
        return os.getxattr(descriptor, name)
    except OSError as error:
        if error.errno in _NO_LABELS:
            return None
        raise
