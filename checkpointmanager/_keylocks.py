"""Who changes a key holds it; who wants it meanwhile waits in line."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class KeyLocks:
    """Writers of one key wait for each other, writers of different keys do not."""

    def __init__(self) -> None:
        self._guard = threading.RLock()  # a signal handler may come while its thread has it
        self._lines: dict[str, deque[threading.Lock]] = {}  # who waits, for each key that is held; guarded by _guard
        self._thread = _Thread()

    @contextmanager
    def locked(self, *keys: str) -> Iterator[None]:
        """All of these at once."""
        taken = self.take(keys)
        try:
            yield
        finally:
            self.give_back(taken)

    def take(self, keys: Sequence[str]) -> Sequence[str]:
        """Always in the same order, so that two callers cannot wait for each other; returns what to give back.

        That holds only if nobody takes more while holding some, so a change function that writes is refused.
        """
        if self._thread.locks_some:
            raise RuntimeError("a function that makes a change must not make others: it could wait for itself")
        if len(keys) != 1:
            keys = sorted(set(keys))
        taken = 0
        try:
            self._thread.locks_some = True
            for key in keys:
                self._take(key)
                taken += 1
        except BaseException:
            self.give_back(keys[:taken])
            raise
        return keys

    def give_back(self, keys: Sequence[str]) -> None:
        """Each to the next in line, if there is one."""
        try:
            for key in keys:
                with self._guard:
                    if line := self._lines[key]:
                        line.popleft().release()
                    else:
                        del self._lines[key]
        finally:
            self._thread.locks_some = False

    def _take(self, key: str) -> None:
        with self._guard:
            line = self._lines.get(key)
            if line is None:
                self._lines[key] = deque()
                return
            turn = threading.Lock()
            turn.acquire()
            line.append(turn)
        try:
            turn.acquire()  # until whoever held the key before gives it to us
        except BaseException:  # a Ctrl-C while waiting
            with self._guard:
                if waits := turn in line:
                    line.remove(turn)
            if not waits:
                self.give_back([key])
            raise


class _Thread(threading.local):
    locks_some = False
