"""The directory of a file store: opened once, checked once, and from then on only used by its descriptor."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from .._errors import DirectoryUnusable, InsecureDirectory
from .._interruption import ignored, pass_on_interruption
from ..format import TEMP
from .system import file_system_of, sync, write_all
from .trust import distrust, insecurity

CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
COPY_BYTES = 1 << 20
# The errors of file systems and kernels that do not make hard links.
LINK_REFUSED = frozenset({errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
# The errors of read-only file systems, such as squashfs, erofs or iso9660 as the root of an appliance.
CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EROFS})

R = TypeVar("R")

_numbers = itertools.count(1)


class Directory:
    """An open directory. All names given to it are single names below it, never paths.

    With `create` a missing directory is made, private to this user, and its entry in the parent made durable.
    A directory that other users could write to is refused unless `allow_insecure`.
    """

    descriptor = -1

    def __init__(self, path: str | os.PathLike[str], *, create: bool, allow_insecure: bool) -> None:
        self._close = os.close  # of the `os` that opens the descriptor: pyfakefs may be gone when this is collected
        self.token = os.urandom(4).hex()  # in names of temp files: a killed process may have left some
        self.path = os.path.abspath(os.fspath(path))
        try:
            if not allow_insecure:
                self._refuse_if(distrust(self.path))  # before anything is made there
            if create:
                _make(self.path)
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            status = os.fstat(self.descriptor)
        except OSError as error:
            self.close()
            pass_on_interruption(error)
            raise DirectoryUnusable(self.path, error) from error
        except BaseException:
            self.close()
            raise
        self.device = status.st_dev
        self.file_system = file_system_of(self.device)
        if not allow_insecure:
            self._refuse_if(_insecurity(status))

    def _refuse_if(self, why: str) -> None:
        if why:
            self.close()
            raise InsecureDirectory(self.path, why)

    def names(self) -> list[str]:
        # Through a new descriptor each time: btrfs lists only what was there when the descriptor was opened.
        try:
            return self.use(".", os.listdir, FOLDER)
        except OSError as error:
            pass_on_interruption(error)
            raise DirectoryUnusable(self.path, error) from error

    def open(self, descriptors: list[int], name: str, flags: int = READ) -> None:
        """Append a descriptor. Never follows a link and never waits for a FIFO; CREATE fails if the name exists."""
        # In C, so that the list has the descriptor before a signal handler can raise.
        descriptors.extend(map(partial(os.open, flags=flags, mode=0o600, dir_fd=self.descriptor), (name,)))

    def use(self, name: str, call: Callable[[int], R], flags: int = READ) -> R:
        """Call a function with a descriptor that is open for the time of the call."""
        descriptors: list[int] = []
        try:
            self.open(descriptors, name, flags)
            return call(descriptors[0])
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def write_temp(self, blob: bytes, *, synced: bool = False) -> str:
        """A new file with these bytes under a temp name. A failure leaves nothing behind."""

        def fill(descriptor: int) -> None:
            write_all(descriptor, blob)
            if synced:
                sync(descriptor)

        temp = self.new_temp()
        try:
            self.use(temp, fill, CREATE)
        except BaseException:
            self.discard(temp)
            raise
        return temp

    def open_folder(self, name: str) -> int:
        return os.open(name, FOLDER, dir_fd=self.descriptor)

    def new_temp(self) -> str:
        """A name that no other file has."""
        return f"{TEMP}{self.token}-{next(_numbers)}"

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def link_or_copy(self, old: str, new: str, *, into: int | None = None) -> None:
        """A second name for a file's bytes, here or in the folder `into`; a synced copy where links are refused."""
        folder = self.descriptor if into is None else into
        try:
            os.link(old, new, src_dir_fd=self.descriptor, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            pass_on_interruption(error)
            if error.errno not in LINK_REFUSED:
                raise
            self._copy(old, new, folder)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self.descriptor)

    def discard(self, name: str) -> bool:
        """Unlink a file that may be gone already. Never raises; False if the file is still there."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return True
        except OSError as error:
            pass_on_interruption(error)
            return False
        return True

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)

    def is_same(self, one: str, other: str) -> bool:
        """True if both are names of one file."""
        try:
            return os.path.samestat(self.stat(one), self.stat(other))
        except FileNotFoundError:
            return False

    def has_no_file(self, name: str) -> bool:
        """True if the name is that of a folder, a link or a device."""
        try:
            return not stat.S_ISREG(self.stat(name).st_mode)
        except FileNotFoundError:
            return False

    def sync_file(self, name: str) -> None:
        """Make a file's bytes durable. A file that is gone needs no sync."""
        with suppress(FileNotFoundError):
            self.use(name, sync)

    def exists(self, name: str) -> bool:
        try:
            self.stat(name)
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Make every change of names durable. Repeating it after a failure proves nothing: the kernel forgets."""
        sync(self.descriptor)

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1  # never again a number that may be another file's
        if descriptor >= 0:
            with ignored(OSError):  # nothing was written through it
                self._close(descriptor)

    __del__ = close

    def _copy(self, old: str, new: str, folder: int) -> None:
        descriptors: list[int] = []
        try:
            self.open(descriptors, old)
            descriptors.extend(map(partial(os.open, flags=CREATE, mode=0o600, dir_fd=folder), (new,)))
            source, target = descriptors
            while piece := os.read(source, COPY_BYTES):
                write_all(target, piece)
            sync(target)
        except BaseException:
            if len(descriptors) > 1:
                with ignored(OSError):
                    os.unlink(new, dir_fd=folder)
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _make(path: str) -> None:
    """mkdir -p, private, and every entry on the way durable.

    Also the entry of a folder that exists: a process may have made it and been killed just before.
    """
    missing: list[str] = []
    while not _is_folder(path):
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
        except OSError as error:
            pass_on_interruption(error)
            if made:  # so that the next attempt makes it anew: a second sync would not make up for the failed one
                with ignored(OSError):
                    os.rmdir(folder)
            raise


def _is_folder(path: str) -> bool:
    """Like os.path.isdir, which would swallow what a signal handler raises."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        pass_on_interruption(error)
        return False


def _sync_parent(path: str) -> None:
    try:
        descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # a parent that may be traversed but not read: nothing more can be done
        return
    try:
        sync(descriptor)
    except OSError as error:
        pass_on_interruption(error)
        if error.errno not in CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


def _insecurity(status: os.stat_result) -> str:
    if status.st_mode & stat.S_IWOTH:  # the sticky bit does not help: others could still add files
        return f"every user can write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    return insecurity(status)
