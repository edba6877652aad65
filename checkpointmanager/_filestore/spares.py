"""The files that updates are written over, so that an update waits for one sync and not for two.

The bytes of a checkpoint say what they are, so their name need not be durable at once: the next owner to open
the directory finds them (recovery.py). New bytes go into a spare, a file whose own name is already durable.

    open        .spare-N
    fstat       one link, a file of ours, 0600    as a new file would be, whatever was done to this one
    fcntl       take and give back a lease        granted only if no other process has it open: no reader sees a mix
    write, (ftruncate,) fdatasync, close          the commit: from here on the update survives a power loss
    renameat2   .spare-N <-> key.json             seen by every reader at once
    renameat2   .spare-N <-> .previous-key        the generation before; the spare has the one before that
                acknowledged                      after any directory sync that was under way meanwhile

On the disk, the file that is now the spare may still have the name of the current checkpoint. So the spare is pending,
and is not written to, until a directory sync that began after the exchanges has succeeded. One such sync frees all
pending spares; it is made when few are free. As long as there are fewer than SPARE_LIMIT, a write that finds none free
goes into a new file, as commit.py describes, and the file that it replaces becomes one more spare. If a sync fails, the
spares pending at that moment are never used again: a later sync does not make good what the failed one has lost.

fdatasync of a file whose size stays the same does not wait for the journal. So lines are padded to multiples of
PADDING, and a spare of the right size is preferred. Names must become durable in the order in which they were changed,
so spares are used only on file systems known for that (system.keeps_order). The lease does not see a reader that has
found a name but not opened it yet; that is why readers look twice.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import threading
import types
from collections import deque
from contextlib import suppress

from .._format.envelope import padded
from .._format.names import SPARE, TEMP
from .directory import Directory
from .marker import Marker
from .quarantine import Quarantine
from .system import CANNOT_EXCHANGE, exchange, write_all

if sys.platform == "linux":
    import fcntl

    from .system import fcntl_at_once

PADDING = 512
SPARE_BYTES = 64 << 10  # the largest spare; an owner that opens after a crash reads them all
SPARE_LIMIT = 128  # so at most 8 MiB
TRIES = 4  # spares tried for one update, if other processes are reading them
_PRIVATE_FILE = stat.S_IFREG | 0o600


class Spare:
    """One spare file. The generations in it count as used: a crash may bring them back."""

    __slots__ = ("failed_before", "holds", "linked", "name", "pending_since", "size")

    def __init__(self, name: str, key: str, generation: int, size: int) -> None:
        self.name = name
        self.holds: tuple[tuple[str, int], ...] = ((key, generation),)  # the highest generation of each key
        self.size = size  # most likely; fstat shows it before a write
        self.pending_since = 0  # it is free when a directory sync with a higher number has ended
        self.failed_before = 0  # how many syncs had failed when its names were changed
        self.linked = False  # its file is the previous generation too, so it is dropped instead of freed


class Spares:
    """The spares of one owner. Whether the system allows them is found out by trying; after a no, never again."""

    def __init__(self, directory: Directory, quarantine: Quarantine, *, allowed: bool, max_bytes: int) -> None:
        self._directory = directory
        self._quarantine = quarantine
        self._max_bytes = max_bytes
        self._user = os.geteuid()
        self._marker = Marker(directory)
        self._lock = threading.RLock()  # guards the two dicts; re-entrant, as a signal handler may interrupt its holder
        self._all: dict[str, Spare] = {}  # every spare that may be on the disk, also those no longer written to
        self._free: dict[int, deque[Spare]] = {}  # by size
        self._pending: deque[Spare] = deque()
        self._syncing = False  # a thread is syncing the directory to free spares
        self._gone: deque[Spare] = deque()  # unlinked, perhaps not durably
        # Under pyfakefs `os` is a stand-in, and the calls that it does not know would reach the real disk.
        self.works = allowed and directory.keeps_order and sys.platform == "linux" and isinstance(os, types.ModuleType)

    def pad(self, blob: bytes) -> bytes:
        """Pad to a size that many checkpoints share, where spares are used."""
        longer = len(blob) + PADDING - 1
        return padded(blob, PADDING) if self.works and longer <= SPARE_BYTES and longer <= self._max_bytes else blob

    def take(self, size: int) -> tuple[Spare, int] | None:
        """A spare for `size` bytes, and its descriptor for writing; None if the write needs a new file."""
        for _ in range(TRIES):
            spare = self._next(size) if self.works and size <= SPARE_BYTES else None
            if spare is None:
                return None
            descriptor = self._open(spare)
            if descriptor is not None:
                return spare, descriptor
        return None

    def overwrite(self, spare: Spare, descriptor: int, blob: bytes, key: str, generation: int) -> None:
        """Replace the content of a spare. Until it is synced, the disk may have old bytes, new ones or a mix."""
        spare.holds += ((key, generation),)  # from the first byte on: together with old padding it may be whole
        write_all(descriptor, blob)
        if spare.size > len(blob):
            os.truncate(descriptor, len(blob))
        spare.size = len(blob)

    def exchange(self, one: str, other: str) -> bool:
        """Exchange the files of two names. False if that is not possible; then nothing has changed."""
        try:
            exchange(self._directory.descriptor, one, other)
        except FileNotFoundError:  # there is nothing to exchange with
            return False
        except OSError as error:
            if error.errno not in CANNOT_EXCHANGE:
                raise
            self.works = False
            return False
        return True

    def put_back(self, spare: Spare) -> None:
        """After its names were exchanged: it may be written to again when that is durable."""
        spare.pending_since = self._directory.syncs_begun
        self._pending.append(spare)

    def has_room(self, size: int) -> bool:
        """True if the file that a write of `size` bytes replaces should become a spare."""
        if not self.works or size > SPARE_BYTES or len(self._all) >= SPARE_LIMIT:
            return False
        with self._lock:
            marked = self._marker.is_set or self._marker.set()
        self.works = not self._marker.inline
        return marked

    def adopt(self, temp: str, key: str, generation: int, size: int, failed_before: int) -> None:
        """Turn a file that is no longer needed into a spare. It is free as soon as its name is durable."""
        spare = Spare(SPARE + temp.removeprefix(TEMP), key, generation, size)
        spare.failed_before = failed_before
        with self._lock:
            self._all[spare.name] = spare  # before the rename: an interrupt may come right after it
        try:
            self._directory.rename(temp, spare.name)
        except OSError:
            with self._lock:
                del self._all[spare.name]
            raise
        self.put_back(spare)

    def drop(self, spare: Spare) -> bool:
        """Remove a spare that must not be used again. False if it is still there.

        Its generations count until the removal is durable.
        """
        gone = self._directory.discard(spare.name)
        if not gone:
            with suppress(OSError):  # a folder that stood where the previous generation belongs
                self._quarantine.move_folder(spare.name, spare.holds[-1][0])
                gone = not self._directory.exists(spare.name)
        if gone:
            self.is_gone(spare)
        return gone

    def is_gone(self, spare: Spare) -> None:
        """Note that the name of a spare is gone. A later directory sync makes that durable."""
        spare.pending_since = self._directory.syncs_begun
        spare.failed_before = self._directory.syncs_failed
        self._gone.append(spare)

    def give_up(self) -> bool:
        """Unlink all free spares, because the disk is full. False if there were none."""
        with self._lock:
            self._settle()
            free = [spare for spares in self._free.values() for spare in spares]
            self._free.clear()
        for spare in free:
            self.drop(spare)
        return bool(free)

    def highest_generation(self, key: str) -> int:
        """The highest generation of the key that a crash may bring back; 0 if there is none."""
        with self._lock:
            self._settle()
            # A generator, which is a frame of its own: CPython 3.13 may leave the block locked when a handler raises
            # in a loop with an `if` (python/cpython#130279).
            held = (generation for spare in self._all.values() for of, generation in spare.holds if of == key)
            return max(held, default=0)

    def close(self) -> None:
        """Make all names durable, then remove the spares: otherwise they could override a backup that is restored.

        If the names cannot be made durable, the spares stay for the next owner. May be called again.
        """
        if not self._marker.is_set:
            return
        with suppress(OSError):
            if self._all:
                self._directory.sync()
            if not self._directory.syncs_failed:
                for spare in list(self._all.values()):
                    if self.drop(spare):
                        self._all.pop(spare.name, None)
                self._marker.remove()
        self._marker.give_back()

    def _next(self, size: int) -> Spare | None:
        """A free spare, if need be after a directory sync, which all waiting threads share.

        None while there are fewer than SPARE_LIMIT and none is free: the write then makes one more.
        """
        with self._lock:
            if self._pending and self._pending[0].pending_since < self._directory.last_ended:
                self._settle()
            spare = self._pop(size)
            if len(self._all) < SPARE_LIMIT or not self._pending:
                return spare
            few = len(self._pending) * 4 > len(self._all) * 3  # are free: one thread syncs before all have to wait
            if spare and (self._syncing or not few):
                return spare
            self._syncing = True
        try:
            self._directory.sync()
        except OSError:  # the spares that were pending are never used again
            pass
        finally:
            self._syncing = False
        if spare:
            return spare
        with self._lock:
            self._settle()
            return self._pop(size)

    def _pop(self, size: int) -> Spare | None:
        if spares := self._free.get(size):
            return spares.popleft()
        for spares in self._free.values():
            if spares:
                return spares.popleft()
        return None

    def _settle(self) -> None:
        """Free, or forget, the spares whose last change is durable by now."""
        ended, failed = self._directory.last_ended, self._directory.syncs_failed
        while self._pending and self._pending[0].pending_since < ended:
            spare = self._pending.popleft()
            if spare.failed_before != failed:
                continue
            if spare.linked:
                self.drop(spare)
            else:
                self._set_free(spare)
        while self._gone and self._gone[0].pending_since < ended:
            spare = self._gone.popleft()
            if spare.failed_before == failed:
                self._all.pop(spare.name, None)

    def _set_free(self, spare: Spare) -> None:
        with self._lock:
            self._free.setdefault(spare.size, deque()).append(spare)

    def _open(self, spare: Spare) -> int | None:
        """A descriptor for writing, or None if this spare cannot be used now."""
        spare.failed_before = self._directory.syncs_failed
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(spare.name, flags, dir_fd=self._directory.descriptor)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                self._set_free(spare)
            else:  # removed by hand, or not a file any more
                self.drop(spare)
            return None
        usable = False
        try:
            status = os.fstat(descriptor)
            if status.st_mode != _PRIVATE_FILE or status.st_uid != self._user or status.st_nlink != 1:
                self.drop(spare)  # a backup has a link to it, or a user has changed it
            elif self._is_unread(descriptor):
                spare.size = status.st_size
                usable = True
            else:
                self._set_free(spare)
        except OSError:
            self._set_free(spare)
        finally:
            if not usable:
                os.close(descriptor)
        return descriptor if usable else None

    def _is_unread(self, descriptor: int) -> bool:
        """A write lease is granted only if no other descriptor has the file open."""
        try:
            # When another process opens the leased file, the kernel sends SIGIO, which kills; SIGURG does not.
            fcntl_at_once(descriptor, fcntl.F_SETSIG, signal.SIGURG)
            fcntl_at_once(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl_at_once(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError:
            return False  # another process is reading it, so this write takes another file
        except OSError:
            self.works = False  # no leases on this file system, or not for this user
            return False
        return True
