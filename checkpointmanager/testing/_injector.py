"""Makes one call to the operating system fail, or the process die there."""

from __future__ import annotations

import builtins
import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from ._acknowledgements import tell_of_failed_sync
from ._diskimage import scan
from ._files import open_recorded
from ._oscalls import EXCHANGES, descriptors_of, is_below, replaced, wrapped

CALLS = (
    *("open", "close", "read", "write", "pwrite", "fsync", "fdatasync", "truncate", "ftruncate", "lseek"),
    *("link", "symlink", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"),
    *("stat", "lstat", "fstat", "listdir", "scandir", "chmod", "fchmod"),
)
OF_TWO_PATHS = frozenset({"link", "rename", "replace", "exchange"})


class Killed(BaseException):
    """Stands for SIGKILL: nothing should catch it, and nothing that runs on its way has an effect on the disk."""


class Death(NamedTuple):
    """The process ends before the call: neither it nor any later one is made."""

    def __str__(self) -> str:
        return "death"


class ShortWrite(NamedTuple):
    """A write takes half of what it was given and says so."""

    def __str__(self) -> str:
        return "short write"


class Error(NamedTuple):
    """The call is not made and fails. (A close is made all the same: so does Linux.)"""

    number: int

    def __str__(self) -> str:
        return errno.errorcode[self.number]


Failure = Error | Death | ShortWrite


class Call(NamedTuple):
    """A call of `os`, and the names that it was about."""

    name: str
    about: str

    def __str__(self) -> str:
        return f"{self.name} {self.about}"


class Injector:
    """Fails call number `at`, from 1, of those that concern what is in `root`; with `only`, of those of that name."""

    def __init__(self, root: str, failure: Failure, at: int, only: str = "") -> None:
        self._root = os.path.abspath(root)
        self._failure = failure
        self._at = at
        self._only = only
        self._count = 0
        self._guard = threading.Lock()  # guards what follows and the count
        self._open = _opened_before(self._root)  # descriptor -> what it is of
        self._before = frozenset(self._open)
        self.failed: Call | None = None  # None: there were not so many calls

    @property
    def dead(self) -> bool:
        return self.failed is not None and isinstance(self._failure, Death)

    @contextmanager
    def injecting(self) -> Iterator[None]:
        opening = partial(open_recorded, self, builtins.open)
        with (
            wrapped(CALLS, self._wrap, EXCHANGES),
            replaced(builtins, "open", opening),
            replaced(io, "open", opening),
        ):
            yield

    def bury(self) -> None:
        """Close what the dead opened, but keep the numbers taken: its objects will close them once more."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            for descriptor in self._open.keys() - self._before:
                os.dup2(nowhere, descriptor, inheritable=False)
        finally:
            os.close(nowhere)

    def clear_the_grave(self) -> None:
        """Give those numbers back that nobody has closed when the dead one's objects were collected."""
        nowhere = os.stat(os.devnull)
        for descriptor in self._open.keys() - self._before:
            with suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), nowhere):
                    os.close(descriptor)

    def concerns(self, file: Any, dir_fd: int | None = None) -> bool:
        if isinstance(file, int):
            return file in self._open
        if dir_fd is not None:
            return dir_fd in self._open
        return is_below(os.path.abspath(os.fsdecode(file)), self._root)

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            file: Any = arguments[0] if arguments else "."
            if not self.concerns(file, options.get("dir_fd", options.get("src_dir_fd"))):
                return real(*arguments, **options)
            about = self._about(name, arguments)
            fails = self._meets(Call(name, about))
            if self.dead:
                raise Killed(f"killed at: {self.failed}")
            if fails and isinstance(self._failure, ShortWrite):
                return real(arguments[0], bytes(arguments[1])[: max(len(arguments[1]) // 2, 1)])
            if name == "close":
                self._open.pop(file, None)
                real(file)
            if fails and isinstance(self._failure, Error):
                if name in ("fsync", "fdatasync"):
                    tell_of_failed_sync(file)
                raise OSError(self._failure.number, os.strerror(self._failure.number))
            if name == "close":
                return None
            result = real(*arguments, **options)
            if name == "open":
                self._open[result] = about
            return result

        return call

    def _meets(self, call: Call) -> bool:
        """Count it, and say whether it is the one."""
        with self._guard:
            self._count += self._only in ("", call.name)
            fails = self._count == self._at and self.failed is None
            if fails:
                self.failed = call
            return fails

    def _about(self, name: str, arguments: tuple[Any, ...]) -> str:
        named = arguments[: 2 if name in OF_TWO_PATHS else 1]
        return " ".join(self._open.get(part, str(part)) if isinstance(part, int) else str(part) for part in named)


@contextmanager
def failing(directory: str | os.PathLike[str], call: str, number: int = errno.EIO, *, nth: int = 1) -> Iterator[None]:
    """Inside, the n-th call of this name that concerns what is in `directory` fails with this errno."""
    with Injector(os.fspath(directory), Error(number), nth, only=call).injecting():
        yield


@contextmanager
def dying(directory: str | os.PathLike[str], *, nth: int) -> Iterator[Injector]:
    """Inside, the process dies before its n-th call that concerns what is in `directory`; afterwards you live again.

    What it had opened is closed and its locks are free, as the kernel would do. Its objects live on until they are
    collected, and whatever they still write goes nowhere; on pyfakefs call gc.collect() before the test ends.
    """
    injector = Injector(os.fspath(directory), Death(), nth)
    try:
        with injector.injecting():
            yield injector
    except BaseException:  # Killed, or what code on the way has made of it
        if not injector.dead:
            raise
        injector.bury()


def _opened_before(root: str) -> dict[int, str]:
    image, inodes = scan(root)
    paths = {node: path for path, node in image.walk()}
    return {number: paths.get(inodes[key], ".") for number, key in descriptors_of(inodes).items()}
