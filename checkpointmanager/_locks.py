"""Locks that a signal handler that raises cannot leave held, and that no forked child waits for.

KeyLocks are for writers of the same key, CallGate lets close() wait for the calls inside.
"""

from __future__ import annotations

import io
import os
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from operator import attrgetter, methodcaller
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from xxhash import xxh3_64_intdigest

from ._errors import ManagerClosed

STRIPES = 1024  # locks, for any number of keys: two keys in a thousand wait for each other
AT_ONCE = 16  # locks per level of a recursion, so that all of them need few levels


class Unbroken(io.IOBase):
    """Runs a generator to its yield, then the block, then the generator to its end, whatever the block does.

    A handler that raises (Ctrl-C, or a SIGTERM that calls sys.exit) may do so wherever Python checks for signals: when
    a Python function begins, when a C function has returned, when a loop repeats. It can therefore end a Python
    `__exit__` before its first line, and what that should release then stays held. An `__exit__` in C is safe.
    Locks have one, so `with lock:` is safe; this class lends one to any generator.

    Like contextlib.contextmanager, but the yield never raises what the block raised. A handler that raises meanwhile
    does so inside the generator, whose with and finally blocks see it.
    """

    closed = True  # nothing is left to do when this is collected

    def __init__(self, generator: Generator[None, None, None]) -> None:
        self._generator = generator
        # The inherited __exit__ is C code that calls close(), and this partial is C code that resumes the generator.
        self.close = partial(next, generator, None)  # type: ignore[method-assign]

    def __enter__(self) -> None:  # type: ignore[override]
        try:
            next(self._generator)
        except BaseException:
            self._generator.close()
            raise


is_mine: Callable[[threading.RLock], bool] = methodcaller("_is_owned")
"""True if this thread holds the lock."""


class KeyLocks:
    """Writers of one key wait for each other, writers of different keys hardly ever do.

    A signal handler that raises leaves nothing held.
    """

    def __init__(self) -> None:
        self._thread = _Held()
        self.forked()
        notify_after_fork(self)

    def locked(self, *keys: str) -> AbstractContextManager[object]:
        """Hold all of these keys at once.

        A thread that took more keys while it holds some could deadlock with another, so that is a RuntimeError.
        """
        held = self._thread.held
        if held and is_mine(held):
            raise RuntimeError("a function that makes a change must not make others: it could wait for itself")
        if len(keys) == 1:
            lock = self._thread.held = self._stripes[_digest(keys[0]) % len(self._stripes)]
            return lock
        # Always in the same order, so that two threads cannot wait for each other.
        numbers = sorted({_digest(key) % len(self._stripes) for key in keys})
        locks = [self._stripes[number] for number in numbers]
        self._thread.held = locks[0] if locks else None
        return Unbroken(_held(locks))

    def are_held(self) -> bool:
        """True if this thread holds any keys."""
        held = self._thread.held
        return held is not None and is_mine(held)

    def forked(self) -> None:
        """Other threads do not exist in the child, so they would never release their keys."""
        self._stripes = [threading.RLock() for _ in range(STRIPES)]


class _Held(threading.local):
    held: threading.RLock | None = None  # the first lock of the last call of locked()


@lru_cache(maxsize=16384)
def _digest(key: str) -> int:
    return xxh3_64_intdigest(key.encode(errors="surrogatepass"))


def _held(locks: Sequence[threading.RLock]) -> Generator[None, None, None]:
    if not locks:
        yield
    elif len(locks) < AT_ONCE:
        with locks[0]:
            yield from _held(locks[1:])
    else:
        a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, *others = locks
        with a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q:
            yield from _held(others)


class CallGate:
    """Every call of a store passes through this gate; after close(), and in a forked child, it lets no thread in.

    Each thread has its own lock and holds it while it is inside, so entering never waits. A thread that enters takes
    its lock first and then checks whether the gate is closed; a thread that closes it does so first and then
    waits for all locks. So one of the two always sees the other.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._barred = ""  # why no thread may enter
        self._empty = False  # no thread is inside, and none will ever enter again
        self._given_back = False
        self._start_empty()
        notify_after_fork(self)

    def __enter__(self) -> None:
        lock = self._thread.lock
        inside = is_mine(lock)
        try:
            lock.acquire()
            if self._barred and not inside:  # a thread that is already inside may finish
                raise ManagerClosed(self._path, self._barred)
        except BaseException:
            try:  # noqa: SIM105  (a signal handler could raise again on the way into suppress)
                lock.release()
            except RuntimeError:  # interrupted while a closing thread held the lock
                pass
            raise

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...
    else:
        # The __exit__ of the thread's lock, which is C code: a signal handler that raises could leave a Python
        # function before its first line. A with statement looks up __exit__ before it enters.
        __exit__ = property(attrgetter("_thread.lock.__exit__"))

    def check(self) -> None:
        """Refuse a thread that entered before a fork and now runs in the child."""
        if self._barred and not is_mine(self._thread.lock):
            raise ManagerClosed(self._path, self._barred)

    def close(self, give_back: Callable[[], object]) -> None:
        """Let no more threads in, wait for those inside, then call `give_back`. A second call waits until that is done.

        After an interrupt, another call completes the work; `give_back` may then be called twice.
        """
        if is_mine(self._thread.lock):  # called by a signal handler, or by a function passed to update
            if self._barred:
                return  # another thread is already closing, and waits for this one
            raise ManagerClosed(self._path, "cannot be closed from within one of its own calls")
        with self._closing:
            if not self._barred:
                self._wait_for_all()
            if self._empty and not self._given_back:
                give_back()
                self._given_back = True

    def forked(self) -> None:
        """After a fork the parent stays the owner. The child gets new locks, because the old ones may be held."""
        self._start_empty()
        self._empty = False
        self._barred = ManagerClosed.FORKED

    def _wait_for_all(self) -> None:
        try:
            self._barred = "is closed; open another"
            for reference in list(self._locks):
                if lock := reference():
                    with lock:
                        pass
            self._empty = True
        except BaseException:  # such as Ctrl-C while waiting: stay open, so that close can be called again
            self._barred = ""
            raise

    def _start_empty(self) -> None:
        self._closing = threading.RLock()  # a signal handler may call close while its thread is in close
        self._locks: set[weakref.ref[threading.RLock]] = set()  # of all live threads that were ever inside
        self._thread = _Inside(self._locks)


class _Inside(threading.local):
    def __init__(self, locks: set[weakref.ref[threading.RLock]]) -> None:
        """Called once in each thread, when the thread enters for the first time."""
        self.lock = threading.RLock()
        locks.add(weakref.ref(self.lock, locks.discard))


class Forkable(Protocol):
    """Something with locks that threads may hold which do not exist in a child."""

    def forked(self) -> None:
        """Called in a child, before anything else runs there."""


_all: weakref.WeakSet[Forkable] = weakref.WeakSet()


def notify_after_fork(thing: Forkable) -> None:
    """Call thing.forked() in every child, as long as somebody else refers to it."""
    _all.add(thing)


def _notify_all() -> None:
    for thing in list(_all):
        thing.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_notify_all)
