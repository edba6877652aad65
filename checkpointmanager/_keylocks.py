"""A thread that changes a key holds it; other threads that want the key wait in line."""

from __future__ import annotations

import os
import threading
import weakref
from _thread import RLock  # threading.RLock is a function around it
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager

from ._unbroken import Unbroken, is_mine


class KeyLocks:
    """Writers of one key wait for each other, writers of different keys do not.

    A signal handler that raises leaves nothing held. In a forked child only the keys of the forking thread are held.
    """

    def __init__(self) -> None:
        self._guard = RLock()  # reentrant: a signal handler may run while its thread holds it
        self._last: dict[str, Turn] = {}  # the last turn in line for each key that is held; guarded by _guard
        self._thread = _Thread()
        _all.add(self)

    def locked(self, *keys: str) -> AbstractContextManager[None]:
        """Hold all of these keys at once."""
        return Unbroken(self._locked(keys))

    def _locked(self, keys: Sequence[str]) -> Generator[None, None, None]:
        turn = Turn(self, keys)
        with turn.lock:
            try:
                turn.wait()
                yield
            finally:
                turn.leave()

    def _forget_other_threads(self) -> None:
        """After a fork the other threads do not exist in the child, so they would never release their keys."""
        self._guard = RLock()
        mine = self._thread.turn
        self._last = mine.held() if mine else {}


class Turn:
    """The time in which one thread holds some keys.

    A turn lasts exactly as long as its lock is held: the next thread waits for that lock. So releasing the keys takes
    no step that a signal handler could prevent; leave() only tidies up.

        with turn.lock:
            try:
                turn.wait()
                ...
            finally:
                turn.leave()
    """

    __slots__ = ("_before", "_keys", "_left", "_locks", "lock")

    def __init__(self, locks: KeyLocks, keys: Sequence[str]) -> None:
        self.lock = RLock()
        self._locks = locks
        # Always in the same order, so that two callers cannot wait for each other.
        self._keys = keys if len(keys) == 1 else sorted(set(keys))
        self._before: dict[str, Turn] = {}  # the turns that this one waits for; they stay here if it gives up
        self._left = False

    def wait(self) -> None:
        """Wait until all earlier turns have ended.

        A thread that took more keys while it holds some could deadlock with another. So a change function that writes
        is refused.
        """
        locks = self._locks
        thread = locks._thread
        if thread.turn and is_mine(thread.turn.lock):  # False for a turn that was interrupted in leave()
            raise RuntimeError("a function that makes a change must not make others: it could wait for itself")
        thread.turn = self
        for key in self._keys:
            with locks._guard:
                before = locks._last.get(key)
                if before:
                    self._before[key] = before
                locks._last[key] = self
            while before:
                with before.lock:  # waits until that turn ends
                    before = before._before.get(key)  # if it gave up before it had the key: the turn it waited for
            self._before.pop(key, None)

    def leave(self) -> None:
        """Leave the lines, so that no thread waits for this turn or refers to it any longer."""
        locks = self._locks
        self._left = True
        with locks._guard:
            for key in self._keys:
                if locks._last.get(key) is self:
                    before = self._before.get(key)
                    while before and before._left:
                        before = before._before.get(key)
                    if before:
                        locks._last[key] = before
                    else:
                        del locks._last[key]
        if locks._thread.turn is self:  # False if wait() refused this turn
            locks._thread.turn = None

    def held(self) -> dict[str, Turn]:
        """The keys that this turn holds, if it belongs to the current thread."""
        return {key: self for key in self._keys if is_mine(self.lock)}


class _Thread(threading.local):
    turn: Turn | None = None


_all: weakref.WeakSet[KeyLocks] = weakref.WeakSet()


def _forget_other_threads() -> None:
    for locks in list(_all):
        locks._forget_other_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
