"""Counts who is inside, so that closing waits for them: a descriptor must not be closed under a running call."""

from __future__ import annotations

import os
import threading
import weakref
from threading import get_ident
from types import TracebackType

from ..errors import ManagerClosed


class Gate:
    """Every call of a store passes through; after close(), and in a forked child, it lets nobody in."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.RLock()  # a signal handler may enter while its thread has it
        self._changed = threading.Condition(self._lock)
        self._inside: dict[int, int] = {}  # calls by thread; guarded by _lock
        self._barred = ""  # why nobody may enter; guarded by _lock
        _gates.add(self)

    def __enter__(self) -> None:
        thread = get_ident()
        with self._lock:
            # Counted first, asked then: a signal handler of this thread may close at any moment in between.
            inside = self._inside.get(thread, 0)
            self._inside[thread] = inside + 1
            if self._barred and not inside:  # who is inside may finish
                del self._inside[thread]
                raise ManagerClosed(self._path, self._barred)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread = get_ident()
        with self._lock:
            left = self._inside.get(thread, 1) - 1
            if left:
                self._inside[thread] = left
            else:
                self._inside.pop(thread, None)
            if self._barred:
                self._changed.notify_all()

    def check(self) -> None:
        """Refuse a thread that believes to be inside, but is the child of a fork since then."""
        if self._barred and get_ident() not in self._inside:
            raise ManagerClosed(self._path, self._barred)

    def close(self) -> bool:
        """Let nobody in any more and wait for those inside. False if it was closed before."""
        with self._changed:
            if self._barred:
                return False
            if get_ident() in self._inside:  # a signal handler, or a function that update was given
                raise ManagerClosed(self._path, "cannot be closed from within one of its own calls")
            self._barred = "is closed; open another"
            try:
                self._changed.wait_for(lambda: not self._inside)
            except BaseException:  # a Ctrl-C while waiting: still open, so that close can be called again
                self._barred = ""
                raise
            return True

    def bar_in_child(self) -> None:
        """After a fork the parent stays the owner. The lock is new: the old one may have been held."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside = {}
        self._barred = "was opened before a fork and belongs to the parent process; open another"


_gates: weakref.WeakSet[Gate] = weakref.WeakSet()


def _bar_all() -> None:
    for gate in list(_gates):
        gate.bar_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_bar_all)
