"""Locks by key: a thread that changes a key holds it, and other threads that want the key wait."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache

from xxhash import xxh3_64_intdigest

from ._fork import tell_of_forks
from ._unbroken import Unbroken, is_mine

STRIPES = 1024  # locks, for any number of keys: two keys in a thousand wait for each other
AT_ONCE = 16  # locks per level of a recursion, so that all of them need few levels


class KeyLocks:
    """Writers of one key wait for each other, writers of different keys hardly ever do.

    A signal handler that raises leaves nothing held.
    """

    def __init__(self) -> None:
        self._thread = _Thread()
        self.forked()
        tell_of_forks(self)

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


class _Thread(threading.local):
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
