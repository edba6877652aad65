"""Makes the same call for many things in a few threads, if the process can start threads.

It uses no pool: a pool refuses all work once the main thread has ended, and an agent may well have a batch to write in
a thread that outlives the main thread, or in an atexit handler.
"""

from __future__ import annotations

import _thread
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(call: Callable[[T], R], things: Iterable[T], threads: int) -> list[R]:
    """The results of the calls, in order. The caller's thread is one of `threads`, and does all the work if it must.

    If a call raises, or the caller is interrupted, this starts no more calls and waits for those under way. A helper
    may end a little later, but by then it refers to nothing of the caller's.
    """
    waiting = deque(enumerate([partial(call, thing) for thing in things]))
    results: dict[int, R] = {}
    errors: list[BaseException] = []
    calling = [_thread.allocate_lock() for _ in range(min(threads, len(waiting)) - 1)]  # held by each helper in a call

    def help_out(calling: _thread.LockType) -> None:
        while waiting:
            with calling:
                try:
                    call_next()
                except BaseException as error:  # noqa: BLE001  (raised below, in the caller's thread)
                    errors.append(error)
                    waiting.clear()

    def call_next() -> None:
        try:
            number, make = waiting.popleft()
        except IndexError:  # another thread was quicker
            return
        results[number] = make()

    try:
        for lock in calling:
            try:
                # Not threading.Thread: a signal handler that raises in its start leaves a thread that never ends.
                _thread.start_new_thread(help_out, (lock,))
            except RuntimeError:  # the interpreter is shutting down, or the process has reached its limit of threads
                break
        while waiting:
            call_next()
    finally:
        waiting.clear()
        for lock in calling:  # a helper that has taken something from the queue holds its lock until that is done
            with lock:
                pass
        raised = errors.copy()
        errors.clear()
    if raised:
        raise raised[0]
    return [result for _, result in sorted(results.items())]
