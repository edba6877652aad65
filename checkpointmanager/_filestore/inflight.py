"""Counts who is inside, so that closing waits for them: a descriptor must not be closed under a running call."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from threading import get_ident
from types import TracebackType

from .._errors import ManagerClosed


class InFlight:
    """Every call of a store passes through; after close(), and in a forked child, it lets nobody in.

    Passing takes no lock. Who enters is counted first and looks then whether it is barred, who closes bars first
    and counts then: so one of the two always sees the other.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._inside: dict[int, int] = {}  # calls by thread; each entry is changed by its own thread only
        self._barred = ""  # why nobody may enter
        self._renew_locks()
        _all.add(self)

    def __enter__(self) -> None:
        thread = get_ident()
        inside = self._inside.get(thread, 0)
        self._inside[thread] = inside + 1
        if self._barred and not inside:  # who is inside may finish
            self.__exit__(None, None, None)
            raise ManagerClosed(self._path, self._barred)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread = get_ident()
        left = self._inside.get(thread, 1) - 1
        if left:
            self._inside[thread] = left
        else:
            self._inside.pop(thread, None)
        if self._barred:
            with self._left:
                self._left.notify_all()

    def check(self) -> None:
        """Refuse a thread that believes to be inside, but is the child of a fork since then."""
        if self._barred and get_ident() not in self._inside:
            raise ManagerClosed(self._path, self._barred)

    def close(self, give_back: Callable[[], object]) -> None:
        """Let nobody in any more, wait for those inside, then `give_back`. Again: wait until that has been done."""
        if get_ident() in self._inside:  # a signal handler, or a function that update was given
            if self._barred:
                return  # another thread closes already, and waits for this one
            raise ManagerClosed(self._path, "cannot be closed from within one of its own calls")
        with self._closing:
            if self._barred:
                return
            try:
                self._barred = "is closed; open another"
                with self._left:
                    self._left.wait_for(lambda: not self._inside)
            except BaseException:  # a Ctrl-C while waiting: still open, so that close can be called again
                self._barred = ""
                raise
            give_back()

    def bar_in_child(self) -> None:
        """After a fork the parent stays the owner. The locks are new: the old ones may have been held."""
        self._renew_locks()
        self._inside = {}
        self._barred = "was opened before a fork and belongs to the parent process; open another"

    def _renew_locks(self) -> None:
        self._closing = threading.RLock()  # a signal handler may close while its thread does
        self._left = threading.Condition()


_all: weakref.WeakSet[InFlight] = weakref.WeakSet()


def _bar_all() -> None:
    for in_flight in list(_all):
        in_flight.bar_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_bar_all)
