"""Knows which threads are inside a store, so that close() waits for them and no call loses its descriptor."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING

from ._errors import ManagerClosed
from ._fork import tell_of_forks
from ._unbroken import is_mine


class CallGate:
    """Every call of a store passes through this gate; after close(), and in a forked child, it lets no thread in.

    Each thread has its own lock and holds it while it is inside, so entering never waits. A thread that enters takes
    its lock first and then checks whether the way is barred; a thread that closes bars the way first and then waits
    for all locks. So one of the two always sees the other.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._barred = ""  # why no thread may enter
        self._empty = False  # no thread is inside, and none will ever enter again
        self._given_back = False
        self._start_empty()
        tell_of_forks(self)

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
        self._thread = _Thread(self._locks)


class _Thread(threading.local):
    def __init__(self, locks: set[weakref.ref[threading.RLock]]) -> None:
        """Called once in each thread, when the thread enters for the first time."""
        self.lock = threading.RLock()
        locks.add(weakref.ref(self.lock, locks.discard))
