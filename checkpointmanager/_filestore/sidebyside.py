"""The same call for many things in a few threads, wherever threads are to be had.

No pool: one refuses everything from the moment in which the main thread ends, and an agent may well have a batch to
write in a thread that outlives it, or in an atexit handler.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(call: Callable[[T], R], things: Iterable[T], threads: int) -> list[R]:
    """What the calls return, in order. The caller's thread is one of `threads`, and does all of it if it has to.

    If a call raises, or the caller is interrupted, no more calls are begun and those under way are waited for.
    """
    waiting = deque(enumerate(things))
    results: dict[int, R] = {}
    errors: list[BaseException] = []
    calling = [threading.Lock() for _ in range(min(threads, len(waiting)) - 1)]  # held by each helper in a call
    helpers: list[threading.Thread] = []

    def help_out(calling: threading.Lock) -> None:
        try:
            while waiting:
                with calling:
                    call_next()
        except BaseException as error:  # noqa: BLE001  (raised below, in the caller's thread)
            errors.append(error)
            waiting.clear()

    def call_next() -> None:
        try:
            number, thing = waiting.popleft()
        except IndexError:  # another thread was quicker
            return
        results[number] = call(thing)

    try:
        for lock in calling:
            helper = threading.Thread(target=help_out, args=[lock])
            try:
                helper.start()
            except RuntimeError:  # the interpreter ends, or the process may have no more threads
                break
            helpers.append(helper)
        while waiting:
            call_next()
        for helper in helpers:
            helper.join()
    finally:
        waiting.clear()
        for lock in calling:
            with lock:
                pass
    if errors:
        raise errors[0]
    return [result for _, result in sorted(results.items())]
