"""Makes one system call fail, or makes the process die there."""

from __future__ import annotations

import errno
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from ._scenario import report_failed_sync
from ._standins import CALLS, replaced
from ._watch import SYNCS, Call, Make, Watch

WRITES = frozenset({"write", "pwrite", "writev", "pwritev"})


class Killed(BaseException):
    """Simulates SIGKILL: nothing should catch it, and no handler that runs on its way changes the disk."""


class Death(NamedTuple):
    """The process ends before the call: neither this call nor any later one is made."""

    def __str__(self) -> str:
        return "death"


class ShortWrite(NamedTuple):
    """A write takes half of its bytes and returns that number."""

    def __str__(self) -> str:
        return "short write"


class Error(NamedTuple):
    """The call fails without being made. (A close is made even so, as on Linux.)"""

    number: int  # the errno

    def raised(self) -> BaseException:
        """What the call raises."""
        return OSError(self.number, os.strerror(self.number))

    def __str__(self) -> str:
        return errno.errorcode[self.number]


class Interruption(NamedTuple):
    """Any exception in place of the call, or after it, as a signal handler may raise one."""

    error: BaseException  # to raise
    after: bool = False

    def raised(self) -> BaseException:
        """What the call raises."""
        return self.error

    def __str__(self) -> str:
        return f"{type(self.error).__name__}{' after the call' if self.after else ''}"


Failure = Error | Death | ShortWrite | Interruption


class Injector:
    """Fails call number `at`, counted from 1, of the calls on files below `root`.

    With `only` or `about`, only calls of that name or on that file count. With `lasting`, every later call fails too.
    """

    def __init__(
        self,
        root: str,
        failure: Failure,
        at: int,
        only: str = "",
        *,
        about: str = "",
        lasting: bool = False,
    ) -> None:
        if only not in ("", *CALLS):
            raise ValueError(f"no call is named {only!r}; the calls that can fail are {', '.join(CALLS)}")
        self._watch = Watch(root, self._around)
        self._failure = failure
        self._at = at
        self._only = only
        self._about = about
        self._lasting = lasting
        self._count = 0
        self._guard = threading.Lock()  # guards the count and the attributes below
        self.calls: list[Call] = []  # every call so far; the last may be the one that failed
        self._redirected: set[int] = set()
        self.failed: Call | None = None  # the first call that failed; None if there were fewer calls

    @property
    def dead(self) -> bool:
        """True once the process has died."""
        return self.failed is not None and isinstance(self._failure, Death)

    @property
    def repeated_syncs(self) -> list[Call]:
        """Syncs of a descriptor whose sync had failed: they prove nothing, whatever they return."""
        return self._watch.repeated_syncs

    @contextmanager
    def injecting(self) -> Iterator[None]:
        """Inside the block, calls are counted, and the chosen one fails."""
        with self._watch.watching(), self.silence():
            yield

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Drops what a finalizer or thread raises after a death: a dead process would not report it either."""
        in_finalizers, in_threads = sys.unraisablehook, threading.excepthook

        def finalizer(unraisable: Any) -> None:
            if not self.dead:
                in_finalizers(unraisable)

        def thread(raised: Any) -> None:
            if not self.dead:
                in_threads(raised)

        with replaced(sys, "unraisablehook", finalizer), replaced(threading, "excepthook", thread):
            yield

    def redirect_descriptors(self) -> None:
        """Point what the dead process opened to /dev/null: its locks are free, and the numbers stay in use.

        Its objects will close these numbers again, and must not close files that others have opened since.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            self._redirected = self._watch.opened_since()
            for descriptor in self._redirected:
                os.dup2(nowhere, descriptor, inheritable=False)
        finally:
            os.close(nowhere)

    def close_descriptors(self) -> None:
        """Collect the objects of the dead process, then close the redirected descriptors that they have not closed."""
        gc.collect()
        nowhere = os.stat(os.devnull)
        for descriptor in self._redirected:
            with suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), nowhere):
                    os.close(descriptor)

    def _around(self, call: Call, make: Make, arguments: tuple[Any, ...], _: dict[str, Any]) -> Any:
        fails = self._meets(call)
        if self.dead:
            raise Killed(f"killed at: {self.failed}")
        if not fails:
            return make()
        if isinstance(self._failure, ShortWrite):
            return make(*_halved(call.name, *arguments))
        assert not isinstance(self._failure, Death)
        if call.name == "close" or (isinstance(self._failure, Interruption) and self._failure.after):
            with suppress(OSError):
                make()
            raise self._failure.raised()
        raised = self._failure.raised()
        if call.name in SYNCS and isinstance(raised, OSError):
            report_failed_sync(arguments[0])
        raise raised

    def _meets(self, call: Call) -> bool:
        """Note the call, and return whether it fails."""
        with self._guard:
            self.calls.append(call)
            if self._only not in ("", call.name) or not call.concerns(self._about):
                return False
            if isinstance(self._failure, ShortWrite) and call.name not in WRITES:
                return False
            self._count += 1
            fails = self._count == self._at or (self._lasting and self._count > self._at)
            if fails and self.failed is None:
                self.failed = call
            return fails


def _halved(call: str, descriptor: int, data: Any, *others: Any) -> tuple[Any, ...]:
    """The arguments of a write of half as many bytes, but at least one."""
    blob = b"".join(bytes(buffer) for buffer in data) if call.endswith("v") else bytes(data)
    half = blob[: max(len(blob) // 2, 1)]
    return (descriptor, [half] if call.endswith("v") else half, *others)


@contextmanager
def failing(
    directory: str | os.PathLike[str],
    call: str = "",
    failure: int | BaseException = errno.EIO,
    *,
    about: str = "",
    nth: int = 1,
    after: bool = False,
    lasting: bool = False,
) -> Iterator[Injector]:
    """Inside the block, the nth call of this name on files below `directory` fails with this errno or exception.

    Without `call`, every call counts. With `about`, only calls on this file count; "." is the directory itself. With
    `after`, the call is made first, as when a signal arrives or a server dies before it answers. With `lasting`, all
    later calls fail too. The block receives an Injector: `calls` has every call so far, and `failed` is the first that
    failed, or None.

    A manager that cannot read a checkpoint looks again before it reports that: use `lasting` to see its error.
    """
    raised = OSError(failure, os.strerror(failure)) if isinstance(failure, int) else failure
    kind: Failure = Error(failure) if isinstance(failure, int) and not after else Interruption(raised, after)
    injector = Injector(os.fspath(directory), kind, nth, only=call, about=about, lasting=lasting)
    with injector.injecting():
        yield injector


@contextmanager
def dying(directory: str | os.PathLike[str], *, nth: int) -> Iterator[Injector]:
    """Inside the block, the process dies before its nth call on files below `directory`; then the test continues.

    What the dead process had opened is closed and its locks are released, as the kernel would do. Its objects exist
    until they are collected, but what they write goes nowhere. On pyfakefs, call gc.collect() before the test ends.
    """
    injector = Injector(os.fspath(directory), Death(), nth)
    try:
        with injector.injecting():
            yield injector
    except BaseException:  # Killed, or whatever wrapped it on the way
        if not injector.dead:
            raise
    if injector.dead:  # perhaps in a finalizer, whose exceptions never get here
        injector.redirect_descriptors()
