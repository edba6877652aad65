"""One lock a key, made when somebody wants it and gone when nobody does."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager


class KeyLocks:
    """Writers of one key wait for each other, writers of different keys do not."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, _KeyLock] = {}  # guarded by _guard

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(key, _KeyLock())
            lock.wanted += 1
        try:
            if lock.holder == threading.get_ident():
                raise RuntimeError(
                    f"checkpoint {key!r} is being changed by this very thread: a change function must not write it"
                )
            with lock.lock:
                lock.holder = threading.get_ident()
                try:
                    yield
                finally:
                    lock.holder = 0
        finally:
            with self._guard:
                lock.wanted -= 1
                if not lock.wanted:
                    del self._locks[key]

    @contextmanager
    def hold_all(self, keys: Iterable[str]) -> Iterator[None]:
        """Several at once, always in the same order, so that two callers cannot wait for each other."""
        with ExitStack() as stack:
            for key in sorted(keys):
                stack.enter_context(self.hold(key))
            yield


class _KeyLock:
    __slots__ = ("holder", "lock", "wanted")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holder = 0  # the thread that has it
        self.wanted = 0  # guarded by KeyLocks._guard
