"""Knows which threads are inside, so that closing waits for them: no descriptor is closed under a running call."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING

from .._errors import ManagerClosed
from .._unbroken import is_mine


class InFlight:
    """Every call of a store passes through; after close(), and in a forked child, it lets no thread in.

    Each thread has a lock of its own and holds it while it is inside, so entering never waits. A thread that enters
    takes its lock first and then checks whether the way is barred; one that closes bars first and then waits for all
    locks. So one of the two always sees the other.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._barred = ""  # why no thread may enter
        self._empty = False  # no thread is inside any more, and none will be
        self._given_back = False
        self._start_empty()
        _all.add(self)

    def __enter__(self) -> None:
        lock = self._thread.lock
        inside = is_mine(lock)
        try:
            lock.acquire()
            if self._barred and not inside:  # a thread that is inside may finish
                raise ManagerClosed(self._path, self._barred)
        except BaseException:
            try:  # noqa: SIM105  (a handler could raise once more on the way into suppress)
                lock.release()
            except RuntimeError:  # interrupted in the moment in which a closing thread had it
                pass
            raise

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...
    else:
        # The thread's lock's own, which is C code: one in Python could be left by a signal handler that raises
        # before its first line. A with block looks it up before it enters.
        __exit__ = property(attrgetter("_thread.lock.__exit__"))

    def check(self) -> None:
        """Refuse a thread that believes to be inside, but is the child of a fork since then."""
        if self._barred and not is_mine(self._thread.lock):
            raise ManagerClosed(self._path, self._barred)

    def close(self, give_back: Callable[[], object]) -> None:
        """Let no thread in any more, wait for those inside, then `give_back`. Again: wait until that has been done.

        If that is interrupted, calling it again goes on where it was. `give_back` may then be called twice.
        """
        if is_mine(self._thread.lock):  # a signal handler, or a function that update was given
            if self._barred:
                return  # another thread closes already, and waits for this one
            raise ManagerClosed(self._path, "cannot be closed from within one of its own calls")
        with self._closing:
            if not self._barred:
                self._wait_for_all()
            if self._empty and not self._given_back:
                give_back()
                self._given_back = True

    def bar_in_child(self) -> None:
        """After a fork the parent stays the owner. The locks are new: the old ones may have been held."""
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
        except BaseException:  # a Ctrl-C while waiting: still open, so that close can be called again
            self._barred = ""
            raise

    def _start_empty(self) -> None:
        self._closing = threading.RLock()  # a signal handler may close while its thread does
        self._locks: set[weakref.ref[threading.RLock]] = set()  # of all threads that live and were ever inside
        self._thread = _Thread(self._locks)


class _Thread(threading.local):
    def __init__(self, locks: set[weakref.ref[threading.RLock]]) -> None:
        """In each thread anew, when it comes for the first time."""
        self.lock = threading.RLock()
        locks.add(weakref.ref(self.lock, locks.discard))


_all: weakref.WeakSet[InFlight] = weakref.WeakSet()


def _bar_all() -> None:
    for in_flight in list(_all):
        in_flight.bar_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_bar_all)
