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
        self._guard = RLock()  # a signal handler may come while its thread has it
        self._last: dict[str, Turn] = {}  # whose turn comes last, for each key that is held; guarded by _guard
        self._thread = _Thread()
        _all.add(self)

    def locked(self, *keys: str) -> AbstractContextManager[None]:
        """All of these at once."""
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
        """After a fork: they are not in the child, so they would never give their keys back."""
        self._guard = RLock()
        mine = self._thread.turn
        self._last = mine.held() if mine else {}


class Turn:
    """One holding of some keys, by one thread.

    It lasts for as long as its lock is held, and that is all: the next thread waits for that lock. So nothing
    needs to be done to give the keys back that a signal handler could prevent; leave() only tidies up.

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
        self._before: dict[str, Turn] = {}  # the turns it waits for; they stay here if it gives up
        self._left = False

    def wait(self) -> None:
        """Until all earlier turns have ended.

        Two callers cannot wait for each other only if no thread takes more keys while it holds some. So a change
        function that writes is refused.
        """
        locks = self._locks
        thread = locks._thread
        if thread.turn and is_mine(thread.turn.lock):  # one that was interrupted while it left is not
            raise RuntimeError("a function that makes a change must not make others: it could wait for itself")
        thread.turn = self
        for key in self._keys:
            with locks._guard:
                before = locks._last.get(key)
                if before:
                    self._before[key] = before
                locks._last[key] = self
            while before:
                with before.lock:  # until it ends
                    before = before._before.get(key)  # if it ended without having had the key: what it waited for
            self._before.pop(key, None)

    def leave(self) -> None:
        """No thread needs to wait for this one any more, or know of it."""
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
        if locks._thread.turn is self:  # not if it was refused
            locks._thread.turn = None

    def held(self) -> dict[str, Turn]:
        """What its own thread holds by it."""
        return {key: self for key in self._keys if is_mine(self.lock)}


class _Thread(threading.local):
    turn: Turn | None = None


_all: weakref.WeakSet[KeyLocks] = weakref.WeakSet()


def _forget_other_threads() -> None:
    for locks in list(_all):
        locks._forget_other_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
