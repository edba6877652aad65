"""One lock a key, made when somebody wants it and gone when nobody does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


class KeyLocks:
    """Writers of one key wait for each other, writers of different keys do not."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, _KeyLock] = {}  # guarded by _guard
        self._thread = threading.local()

    @contextmanager
    def hold(self, *keys: str) -> Iterator[None]:
        """All of these at once, always in the same order, so that two callers cannot wait for each other.

        That holds only if nobody takes more while holding some, so a change function that writes is refused.
        """
        if getattr(self._thread, "holds", False):
            raise RuntimeError("a function that makes a change must not make others: it could wait for itself")
        self._thread.holds = True
        try:
            with ExitStack() as stack:
                for key in sorted(set(keys)):
                    stack.enter_context(self._hold_one(key))
                yield
        finally:
            self._thread.holds = False

    @contextmanager
    def _hold_one(self, key: str) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(key, _KeyLock())
            lock.wanted += 1
        try:
            with lock.lock:
                yield
        finally:
            with self._guard:
                lock.wanted -= 1
                if not lock.wanted:
                    del self._locks[key]


class _KeyLock:
    __slots__ = ("lock", "wanted")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted = 0  # guarded by KeyLocks._guard
