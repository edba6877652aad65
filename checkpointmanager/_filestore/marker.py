"""The file `.spares`: created before the first spare, removed after the last, and locked by a live owner.

While it is locked, all names are right and readers can ignore the spares. It is not the lock that owners take, so a
reader that probes it disturbs no owner. The kernel releases its lock when the owner dies. Its text is the id of the
boot in which it was created, or in which an owner last moved spares into place.
"""

from __future__ import annotations

import os
import sys
import types
from contextlib import suppress

from .._format.boot import boot_id
from .._format.names import SPARES
from .._format.reason import Damaged
from .directory import Directory
from .reading import read_to_judge
from .system import NO_ROOM, is_inline, write_all

if sys.platform != "win32":
    import fcntl


class Marker:
    """The marker of one owner, always a new file, which replaces that of a dead owner."""

    _descriptor = -1

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._close = os.close  # of the `os` that opens the descriptor: pyfakefs may be gone when this is collected
        self.inline = False  # ext4 keeps small files in their inodes here, so fdatasync is not enough

    @property
    def is_set(self) -> bool:
        return self._descriptor >= 0

    def set(self) -> bool:
        """Create the file; the directory's next sync makes it durable. False on a full disk, or with inline data."""
        temp = self._directory.new_temp()
        descriptor = -1
        try:
            descriptor = self._directory.create(temp)
            write_all(descriptor, _text())
            self.inline = is_inline(descriptor)
            if not self.inline:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._directory.rename(temp, SPARES)  # locked before any reader can see it
                self._descriptor, descriptor = descriptor, -1
        except OSError:
            pass
        finally:
            if not self.is_set:
                self._directory.discard(temp)
            if descriptor >= 0:
                os.close(descriptor)
        return self.is_set

    def remove(self) -> None:
        """Call this when no spares are left. A file that has been replaced stays: another owner has spares."""
        if os.path.samestat(os.fstat(self._descriptor), self._directory.stat(SPARES)):
            self._directory.unlink(SPARES)

    def give_back(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                self._close(descriptor)

    __del__ = give_back


def is_of_another_boot(directory: Directory) -> bool:
    """True if the marker's owner died in an earlier boot, so that all names come from the disk. Raises OSError."""
    boot = boot_id()
    try:
        return bool(boot) and read_to_judge(directory, SPARES, 1024).strip() != boot.encode()
    except (FileNotFoundError, Damaged):
        return False


def renew(directory: Directory) -> None:
    """Let the marker name this boot, before names change that a failed sync may lose. Does nothing on a full disk."""
    try:
        directory.put(SPARES, _text())
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise


def has_owner(directory: Directory) -> bool:
    """True if a live owner uses spares; it has already recovered what an earlier owner left."""
    if not isinstance(os, types.ModuleType):  # pyfakefs, whose descriptors mean nothing to the kernel
        return False
    with suppress(OSError):
        descriptor = directory.open(SPARES)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def _text() -> bytes:
    return f"{boot_id()}\n".encode()
