"""The file `.spares`: there before the first spare is, gone after the last, and locked by an owner that lives.

As long as it is locked all names are right, and nobody needs to look into spares. It is not the lock that owners take,
so whoever looks disturbs nobody. The kernel gives the lock back when its owner dies. Its text is the id of the boot in
which it was made.
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
from .system import is_inline, write_all

if sys.platform != "win32":
    import fcntl


class Marker:
    """That of one owner, which makes a file of its own: one that a dead owner left is replaced."""

    _descriptor = -1

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._close = os.close  # of the os that gives the descriptor: pyfakefs may be gone when it is collected
        self.inline = False  # bytes are kept in inodes here, so fdatasync is not enough

    @property
    def is_set(self) -> bool:
        return self._descriptor >= 0

    def set(self) -> bool:
        """Durable with the next sync of the directory. False if it cannot be: a full disk, or inline data."""
        temp = self._directory.new_temp()
        descriptor = -1
        try:
            descriptor = self._directory.create(temp)
            write_all(descriptor, f"{boot_id()}\n".encode())
            self.inline = is_inline(descriptor)
            if not self.inline:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._directory.rename(temp, SPARES)  # locked before anybody can see it
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
        """There are no spares any more. Not if somebody has replaced it: then another owner has some."""
        if os.path.samestat(os.fstat(self._descriptor), self._directory.stat(SPARES)):
            self._directory.unlink(SPARES)

    def give_back(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                self._close(descriptor)

    __del__ = give_back


def is_of_another_boot(directory: Directory) -> bool:
    """True if the owner that made it has not died in this boot, so that names are what the disk has. Raises OSError."""
    boot = boot_id()
    try:
        return bool(boot) and read_to_judge(directory, SPARES, 1024).strip() != boot.encode()
    except (FileNotFoundError, Damaged):
        return False


def has_owner(directory: Directory) -> bool:
    """True if an owner lives that uses spares. It has put in place what an earlier one left."""
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
