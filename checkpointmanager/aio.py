"""The CheckpointManager for asyncio: the same calls, awaited, none of which blocks the event loop.

    async with AsyncCheckpointManager("/var/lib/agent/leases", LEASES) as manager:
        await manager.create_checkpoint("pod-7", Lease(...))    # durable when it returns

Changes of one key happen in the order in which they were awaited; those of different keys overlap their syncs.
KeyedThreads says what a cancellation does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack, overload

from ._asynccache import AsyncCache, AsyncCheckpointCache
from ._changeset import NO_DEFAULT
from ._checkpoint import Checkpoint, Loaded, Recovery, Verified
from ._errors import DirectoryLocked, ManagerClosed
from ._events import Event
from ._keyedthreads import THREADS, KeyedThreads, KeyedThreadsClosed
from ._manager import CheckpointManager
from ._options import FileOptions, check_arguments, check_key
from ._recovery import RecoveryPlan
from ._schema import Schema
from ._store import Store

__all__ = [
    "AsyncCache",
    "AsyncCheckpointCache",
    "AsyncCheckpointManager",
    "KeyedThreads",
    "KeyedThreadsClosed",
]

T = TypeVar("T")
D = TypeVar("D")
R = TypeVar("R")

LOCK_SLICE_SECONDS = 0.25  # the longest that a cancelled open() keeps waiting for the lock, except with sharing


class AsyncCheckpointManager(Generic[T]):
    """Takes the arguments of CheckpointManager, and `threads`: how many calls may run at once.

    Nothing is touched before `async with` or `await manager.open()`. Do not change a value that you passed to a call
    before the call has returned: it is encoded in another thread. Change functions run there too.
    """

    @overload
    def __init__(
        self: AsyncCheckpointManager[Any],
        directory: str | os.PathLike[str] | Store,
        schema: None = None,
        *,
        threads: int = THREADS,
        on_event: Callable[[Event], object] | None = None,
        boot_id: str | None = None,
        **options: Unpack[FileOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        directory: str | os.PathLike[str] | Store,
        schema: Schema[T],
        *,
        threads: int = THREADS,
        on_event: Callable[[Event], object] | None = None,
        boot_id: str | None = None,
        **options: Unpack[FileOptions],
    ) -> None: ...
    def __init__(
        self,
        directory: str | os.PathLike[str] | Store,
        schema: Schema[Any] | None = None,
        *,
        threads: int = THREADS,
        on_event: Callable[[Event], object] | None = None,
        boot_id: str | None = None,
        **options: Unpack[FileOptions],
    ) -> None:
        check_arguments(directory, schema, on_event, boot_id, options)
        if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
            raise ValueError(f"threads must be a number, 1 or more, not {threads!r}")
        self._path = (
            os.path.abspath(os.fspath(directory)) if isinstance(directory, str | os.PathLike) else directory.path
        )
        self._options = options
        self._threads = threads
        self._keyed: KeyedThreads | None = None
        self._make: Callable[..., CheckpointManager[T]] = partial(
            CheckpointManager, directory, schema, on_event=on_event, boot_id=boot_id
        )
        self._manager: CheckpointManager[T] | None = None  # until it is open
        self._closing = False

    async def open(self) -> AsyncCheckpointManager[T]:
        """Take the directory. Raises DirectoryLocked if another owner still has it after lock_timeout."""
        if self._keyed:
            raise ManagerClosed(self._path, "was opened before; make another")
        self._keyed = KeyedThreads(self._threads, "checkpointmanager")
        try:
            await self._take()
        except BaseException:
            if self._manager is not None:  # cancelled just after the open succeeded
                self._manager.close()
                self._manager = None
            await self._keyed.close()
            raise
        return self

    async def create_checkpoint(self, key: str, data: T, *, overwrite: bool = True) -> Checkpoint[T]:
        """See CheckpointManager.create_checkpoint."""
        return await self.run([key], lambda manager: manager.create_checkpoint(key, data, overwrite=overwrite))

    @overload
    async def update_checkpoint(self, key: str, change: Callable[[T], T]) -> Checkpoint[T]: ...
    @overload
    async def update_checkpoint(self, key: str, change: Callable[[T], T], default: T) -> Checkpoint[T]: ...
    @overload
    async def update_checkpoint(self, key: str, change: Callable[[T | None], T], default: None) -> Checkpoint[T]: ...
    async def update_checkpoint(self, key: str, change: Callable[[Any], T], default: Any = NO_DEFAULT) -> Checkpoint[T]:
        """See CheckpointManager.update_checkpoint. `change` runs in a thread, not in the event loop."""
        return await self.run([key], lambda manager: manager.update_checkpoint(key, change, default))

    async def remove_checkpoint(self, key: str) -> None:
        """See CheckpointManager.remove_checkpoint."""
        await self.run([key], lambda manager: manager.remove_checkpoint(key))

    async def recover_checkpoint(self, key: str, *, rollback: bool = False) -> Recovery:
        """See CheckpointManager.recover_checkpoint."""
        return await self.run([key], lambda manager: manager.recover_checkpoint(key, rollback=rollback))

    async def plan_recovery(self, key: str) -> RecoveryPlan:
        """See CheckpointManager.plan_recovery. Apply the plan with run()."""
        return await self._look(lambda manager: manager.plan_recovery(key))

    async def run(self, keys: Iterable[str], work: Callable[[CheckpointManager[T]], R]) -> R:
        """Run `work(manager)` in a thread, in the turn of these keys: a batch, a transaction, plan.apply().

        def move(manager):
            with manager.transaction() as changes:
                changes.remove_checkpoint("a")
                changes.create_checkpoint("b", lease)

        await manager.run(["a", "b"], move)
        """
        manager = self._open_manager()
        assert self._keyed
        return await self._keyed.run([check_key(key) for key in keys], lambda: work(manager))

    @overload
    async def get_checkpoint(self, key: str) -> Checkpoint[T]: ...
    @overload
    async def get_checkpoint(self, key: str, default: D) -> Checkpoint[T] | D: ...
    async def get_checkpoint(self, key: str, default: Any = NO_DEFAULT) -> Any:
        """See CheckpointManager.get_checkpoint. Never waits for writers: returns the old checkpoint or the new one."""
        return await self._look(lambda manager: manager.get_checkpoint(key, default))

    async def previous_checkpoint(self, key: str) -> Checkpoint[T] | None:
        """See CheckpointManager.previous_checkpoint."""
        return await self._look(lambda manager: manager.previous_checkpoint(key))

    async def list_checkpoints(self) -> list[str]:
        """See CheckpointManager.list_checkpoints."""
        return await self._look(lambda manager: manager.list_checkpoints())

    async def load(self, *, repair: bool = False) -> Loaded[T]:
        """See CheckpointManager.load."""
        return await self._look(lambda manager: manager.load(repair=repair))

    async def verify(self) -> Verified:
        """See CheckpointManager.verify."""
        return await self._look(lambda manager: manager.verify())

    async def close(self) -> None:
        """Wait for every call that was already awaited, then release the directory. May be called twice.

        Cancelling the caller does not stop the close.
        """
        if self._manager is not None and self._keyed:
            self._closing = True
            await self._keyed.close(self._manager.close)

    async def __aenter__(self) -> AsyncCheckpointManager[T]:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncCheckpointManager({self._path!r})"

    async def _take(self) -> None:
        """Wait in short slices: a thread that waits for a lock cannot be interrupted."""
        assert self._keyed
        options = self._options.copy()
        sharing = options.get("sharing", False)
        end = time.monotonic() + (options.get("lock_timeout") or 0.0)
        while True:
            left = max(0.0, end - time.monotonic())
            if not sharing:
                options["lock_timeout"] = min(LOCK_SLICE_SECONDS, left)
            try:
                await self._keyed.call(lambda: self._open_with(options))
                return
            except DirectoryLocked:
                if sharing or left <= LOCK_SLICE_SECONDS:
                    raise

    def _open_with(self, options: FileOptions) -> None:
        self._manager = self._make(**options)

    async def _look(self, look: Callable[[CheckpointManager[T]], R]) -> R:
        manager = self._open_manager()
        assert self._keyed
        return await self._keyed.call(lambda: look(manager))

    def _open_manager(self) -> CheckpointManager[T]:
        if self._manager is None:
            raise ManagerClosed(self._path, "is not open yet; use `async with`, or await open()")
        if self._closing:
            raise ManagerClosed(self._path, "is closed; open another")
        return self._manager
