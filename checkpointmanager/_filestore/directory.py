"""The directory of a file store: opened once, checked once, and from then on only used by its descriptor."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
from contextlib import suppress

from .._errors import DirectoryUnusable, InsecureDirectory
from .._format.names import TEMP
from .system import file_system_of, keeps_order, sync, write_all

CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
COPY_BYTES = 1 << 20
# The errors of file systems and kernels that do not make hard links.
LINK_REFUSED = frozenset({errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
# The errors of read-only file systems, such as squashfs, erofs or iso9660 as the root of an appliance.
CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EROFS})
TWIN = "the file system ignores case, and there is a key that differs only in case; use another key"

_numbers = itertools.count(1)


class Directory:
    """An open directory. All names given to it are single names below it, never paths.

    With `create` a missing directory is made, private to this user, and its entry in the parent made durable.
    A directory that other users could write to is refused unless `allow_insecure`.
    """

    descriptor = -1

    def __init__(self, path: str | os.PathLike[str], *, create: bool, allow_insecure: bool) -> None:
        self._close = os.close  # of the `os` that opens the descriptor: pyfakefs may be gone when this is collected
        self.sync_error: OSError | None = None  # the last one
        self._listing = threading.Lock()  # one listing at a time: they share the position of the descriptor
        self.stuck: dict[str, str] = {}  # names that could not be put back, with where they are (removals.py)
        self._syncing = threading.Lock()
        self.syncs_begun = self.last_ended = self._last_failed = 0  # numbers of syncs; set while holding _syncing
        self.syncs_failed = 0  # a count
        self._awaited = 0  # the number of the first sync that makes durable what a call left unsynced
        self.token = os.urandom(4).hex()  # in names of temp files: a killed process may have left some
        self.path = os.path.abspath(os.fspath(path))
        try:
            if create:
                _make(self.path)
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            status = os.fstat(self.descriptor)
        except OSError as error:
            self.close()
            raise DirectoryUnusable(self.path, error) from error
        self.device = status.st_dev
        self.file_system = file_system_of(self.device)
        self.keeps_order = keeps_order(self.file_system, self.device)
        self.ignores_case = False  # found out by the owner
        self.creating = threading.Lock()  # of names, where case is ignored
        if not allow_insecure and (why := _insecurity(status)):
            self.close()
            raise InsecureDirectory(self.path, why)

    def names(self) -> list[str]:
        try:
            if self.descriptor < 0:  # listdir(-1) would list the working directory
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            with self._listing:
                return os.listdir(self.descriptor)
        except OSError as error:
            raise DirectoryUnusable(self.path, error) from error

    def create(self, name: str) -> int:
        """A descriptor for writing a new file. Fails if the name exists, also as a link."""
        return os.open(name, CREATE, 0o600, dir_fd=self.descriptor)

    def put(self, name: str, blob: bytes = b"") -> None:
        """Give the name to a new file with these bytes, whatever had it before. Syncs nothing."""
        temp = self.new_temp()
        try:
            descriptor = self.create(temp)
            try:
                if blob:
                    write_all(descriptor, blob)
            finally:
                os.close(descriptor)
            self.rename(temp, name)
        except OSError:
            self.discard(temp)
            raise

    def open(self, name: str) -> int:
        """A descriptor for reading; never follows a link, never waits for a FIFO."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=self.descriptor)

    def open_folder(self, name: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=self.descriptor)

    def new_temp(self, about: str = "") -> str:
        """A name that no other file has."""
        return f"{TEMP}{self.token}-{next(_numbers)}{about}"

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def link_or_copy(self, old: str, new: str, *, into: int | None = None) -> None:
        """A second name for a file's bytes, here or in the folder `into`; a synced copy where links are refused."""
        folder = self.descriptor if into is None else into
        try:
            os.link(old, new, src_dir_fd=self.descriptor, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in LINK_REFUSED:
                raise
            self._copy(old, new, folder)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self.descriptor)

    def discard(self, name: str) -> bool:
        """Unlink a file that may be gone already. Never raises; False if the file is still there."""
        try:
            self.unlink(name)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)

    def exists(self, name: str) -> bool:
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Make durable what this thread has changed. Syncs are made one at a time, and one serves all waiting threads.

        The kernel reports a failure once, so a thread must know the outcome of all syncs before it goes on.
        """
        needed = self.syncs_begun + 1  # the one that is running may have begun too early
        with self._syncing:
            if self.last_ended < needed:
                self.syncs_begun += 1
                try:
                    sync(self.descriptor)
                except OSError as error:
                    self.sync_error = error
                    self.syncs_failed += 1
                    self._last_failed = self.syncs_begun
                    self.leave_unsynced()
                self.last_ended = self.syncs_begun  # not if it was interrupted: then it has served nobody
            if self.sync_error and self._last_failed >= needed:
                raise self.sync_error

    def sync_since(self, error_before: OSError | None) -> None:
        """Sync, and raise if any thread's sync failed since `sync_error` was `error_before`: it may have lost more."""
        self.sync()
        if self.sync_error and self.sync_error is not error_before:
            raise self.sync_error

    def leave_unsynced(self) -> None:
        """Note that a call ends although the names that it changed may not be durable."""
        self._awaited = self.syncs_begun + 1

    def has_unsynced(self) -> bool:
        """True if a call has left names unsynced, and no sync has succeeded since."""
        return self.last_ended < self._awaited

    def await_sync(self, error_before: OSError | None) -> None:
        """Wait for the sync that is under way, if any. Raises if one failed since `sync_error` was `error_before`."""
        with self._syncing:
            error = self.sync_error
        if error and error is not error_before:
            raise error

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1  # never again a number that may be another file's
        if descriptor >= 0:
            with suppress(OSError):  # nothing was written through it
                self._close(descriptor)

    __del__ = close

    def _copy(self, old: str, new: str, folder: int) -> None:
        source = self.open(old)
        try:
            target = os.open(new, CREATE, 0o600, dir_fd=folder)
            try:
                while piece := os.read(source, COPY_BYTES):
                    write_all(target, piece)
                sync(target)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new, dir_fd=folder)
                raise
            finally:
                os.close(target)
        finally:
            os.close(source)


def _make(path: str) -> None:
    """mkdir -p, private, and every entry on the way durable.

    Also the entry of a folder that exists: a process may have made it and been killed just before.
    """
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    _sync_parent(path)
    for folder in reversed(missing):
        made = False
        with suppress(FileExistsError):  # another process was quicker, or it is not a directory: opening it will show
            os.mkdir(folder, 0o700)
            made = True
        try:
            _sync_parent(folder)
        except OSError:
            if made:  # so that the next attempt makes it anew: a second sync would not make up for the failed one
                with suppress(OSError):
                    os.rmdir(folder)
            raise


def _sync_parent(path: str) -> None:
    try:
        descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # a parent that may be traversed but not read: nothing more can be done
        return
    try:
        sync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


def _insecurity(status: os.stat_result) -> str:
    if status.st_mode & stat.S_IWOTH:
        return f"every user can write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {status.st_uid}, who is neither this user ({os.geteuid()}) nor root"
    return ""
