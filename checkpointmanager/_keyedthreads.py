"""Runs blocking calls in threads for asyncio: in order for each key, in parallel for different keys.

A waiting task may be cancelled at any moment. If its call has not started, it never runs. If it has, it runs to its
end, and only then does the task see the cancellation and the key's next call start: no caller sees "cancelled" for a
write whose outcome is still open.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, copy_context
from typing import TypeVar

R = TypeVar("R")

THREADS = 16  # at once. Each mostly waits for syncs, so more threads than cores help; 32 were no faster than 8


class KeyedThreadsClosed(RuntimeError):
    """A turn was requested after close()."""


class KeyedThreads:
    """Belongs to one event loop. Each key grants its turns in the order in which they were awaited."""

    def __init__(self, threads: int = THREADS, name: str = "threads") -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lines: dict[str, deque[_Ticket]] = {}  # the first ticket of each line has the turn
        self._busy = 0  # the number of turns, active or awaited, and of calls
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = self._closed = False
        self._ends: dict[Callable[[], object], asyncio.Task[None]] = {}  # by the last call

    async def run(self, keys: Iterable[str], call: Callable[[], R]) -> R:
        """Run one call as soon as it has the turn of all its keys."""
        async with self.turn(keys):
            return await self.call(call)

    @asynccontextmanager
    async def turn(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """While this context is held, no other turn of these keys is active.

        The ticket joins all lines in one step, so two turns can never wait for each other.
        """
        if self._closing:
            raise KeyedThreadsClosed("closed: no more turns are granted")
        ticket = _Ticket(frozenset(keys))
        for key in ticket.keys:
            self._lines.setdefault(key, deque()).append(ticket)
        try:
            with self._counted():
                if not self._is_first(ticket):
                    ticket.turn = asyncio.get_running_loop().create_future()
                    await ticket.turn
                yield
        finally:
            self._leave(ticket)

    async def call(self, call: Callable[[], R]) -> R:
        """Run a call in a thread, to its end: a cancellation takes effect after the call has returned."""
        with self._counted():
            started: Future[R] = Future()
            context = copy_context()
            try:
                self._pool.submit(_run, started, context, call)
            except RuntimeError as error:
                if self._closed:
                    raise KeyedThreadsClosed("closed: no more calls are accepted") from error
                # The main thread has ended, or no thread can be started: blocking here is better than not running.
                if started.cancel():
                    return context.run(call)
            return await _to_its_end(started)

    async def drained(self) -> None:
        """Grant no more turns, and wait for all turns that are active or awaited."""
        self._closing = True
        await self._idle.wait()

    async def close(self, last: Callable[[], object] = lambda: None) -> None:
        """Drain, make the last call, then release the threads. May be called twice.

        Cancelling the caller does not stop it. If the event loop itself ends, the last call is made at once.
        """
        if last not in self._ends:
            self._ends[last] = asyncio.create_task(self._close(last))
            # Not in the task: one that is cancelled before its first step never runs.
            self._ends[last].add_done_callback(lambda task: last() if task.cancelled() else None)
        await asyncio.shield(self._ends[last])

    async def _close(self, last: Callable[[], object]) -> None:
        await self.drained()
        if not self._closed:
            await self.call(last)
            self._closed = True
            self._pool.shutdown(wait=False)
        else:  # closed by another of those that share it
            last()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    def _is_first(self, ticket: _Ticket) -> bool:
        return all(self._lines[key][0] is ticket for key in ticket.keys)

    def _leave(self, ticket: _Ticket) -> None:
        followers: list[_Ticket] = []
        for key in ticket.keys:
            line = self._lines[key]
            line.remove(ticket)
            if line:
                followers.append(line[0])
            else:
                del self._lines[key]
        for follower in followers:
            if follower.turn and not follower.turn.done() and self._is_first(follower):
                follower.turn.set_result(None)


class _Ticket:
    __slots__ = ("keys", "turn")

    def __init__(self, keys: frozenset[str]) -> None:
        self.keys = keys
        self.turn: asyncio.Future[None] | None = None  # None if it got its turn at once


def _run(started: Future[R], context: Context, call: Callable[[], R]) -> None:
    if not started.set_running_or_notify_cancel():
        return
    try:
        started.set_result(context.run(call))
    except BaseException as error:  # noqa: BLE001  (raised where it is awaited)
        started.set_exception(error)


async def _to_its_end(started: Future[R]) -> R:
    ended = asyncio.wrap_future(started)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError as cancelled:
        if started.cancel():  # still waiting for a thread: it never runs
            raise
        failure = await _failure_of(ended)
        raise cancelled from failure


async def _failure_of(ended: asyncio.Future[R]) -> BaseException | None:
    """The exception of a call whose waiter was cancelled, perhaps repeatedly; None if it succeeded."""
    while not ended.done():
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:
            continue
    return ended.exception()
