"""For asyncio: a cache whose writes are awaited and whose reads stay plain calls, and threads for any other call.

    async with await AsyncCheckpointCache.open(lambda: CheckpointCache("/var/lib/agent/leases", LEASES)) as leases:
        await leases.put("pod-7", Lease("node-a"))              # durable when it returns
        leases.cache["pod-7"]                                   # from memory

    threads = KeyedThreads()                                    # for a manager without a cache
    await threads.run(["pod-7"], lambda: manager.create_checkpoint("pod-7", Lease("node-a")))

Changes of one key happen in the order in which they were awaited; changes of different keys overlap their syncs.
KeyedThreads says what a cancellation does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from ._cache import CheckpointCache, Entries, Outcomes, key_list
from ._cacheentry import CacheEntry
from ._keyedthreads import KeyedThreads, KeyedThreadsClosed

__all__ = ["AsyncCache", "AsyncCheckpointCache", "KeyedThreads", "KeyedThreadsClosed"]

T = TypeVar("T")
V = TypeVar("V")


class Closable(Protocol):
    """What an AsyncCache can wrap."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class AsyncCache(Generic[C]):
    """Wraps an existing cache; `open` creates one. Read from `cache` directly: reads never wait.

    The base of AsyncCheckpointCache and of the caches in draState. It opens and closes without blocking the event
    loop, and `threads` runs the changes of each key in turn.
    """

    def __init__(self, cache: C, threads: KeyedThreads | None = None) -> None:
        self.cache = cache
        self.threads = threads or KeyedThreads(name="cache")

    @classmethod
    async def open(cls, make: Callable[[], C], threads: KeyedThreads | None = None) -> Self:
        """Load everything in a thread. A cancelled open leaves no cache behind."""
        return cls(*await _made(make, threads))

    async def close(self) -> None:
        """Wait for every change that was already awaited, then release the directory. May be called twice.

        Cancelling the caller does not stop the close.
        """
        await self.threads.close(self.cache.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncCheckpointCache(AsyncCache[CheckpointCache[T]], Generic[T]):
    """The CheckpointCache for asyncio. The initial load and change functions run in a thread."""

    @staticmethod
    async def open(  # a classmethod of this class would be AsyncCheckpointCache[Unknown] for pyright
        make: Callable[[], CheckpointCache[V]], threads: KeyedThreads | None = None
    ) -> AsyncCheckpointCache[V]:
        """Load everything in a thread. A cancelled open leaves no cache behind."""
        return AsyncCheckpointCache(*await _made(make, threads))

    async def put(self, key: str, value: T) -> None:
        """See CheckpointCache.put."""
        await self.threads.run([key], lambda: self.cache.put(key, value))

    async def delete(self, *keys: str) -> None:
        """See CheckpointCache.delete."""
        await self.threads.run(keys, lambda: self.cache.delete(*keys))

    async def change(
        self, keys: Iterable[str], function: Callable[[Entries[T]], Outcomes[T]], *, independent: bool = False
    ) -> None:
        """See CheckpointCache.change. `function` runs in a thread, not in the event loop."""
        wanted = key_list(keys)
        await self.threads.run(wanted, lambda: self.cache.change(wanted, function, independent=independent))

    async def retain(
        self, list_live: Callable[[], Iterable[str]], *, complete: bool, at_most: float = 0.5
    ) -> Sequence[str]:
        """See CheckpointCache.retain. `list_live` runs in a thread, not in the event loop."""
        return await self.threads.call(lambda: self.cache.retain(list_live, complete=complete, at_most=at_most))

    async def reload(self, key: str) -> CacheEntry[T] | None:
        """See CheckpointCache.reload."""
        return await self.threads.run([key], lambda: self.cache.reload(key))


async def _made(make: Callable[[], C], threads: KeyedThreads | None) -> tuple[C, KeyedThreads]:
    threads = threads or KeyedThreads(name="cache")
    made: list[C] = []
    try:
        await threads.call(lambda: made.append(make()))
    except BaseException:
        for cache in made:
            cache.close()
        raise
    return made[0], threads
