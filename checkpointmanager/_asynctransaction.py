"""A transaction for asyncio: its verbs are plain calls, and the end of its `async with` block is awaited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

from ._checkpoint import Checkpoint
from ._transaction import NO_DEFAULT, Transaction

T = TypeVar("T")


class AsyncTransaction(Generic[T]):
    """Like Transaction: all changes of the block become durable together, or none of them does.

    If the block raises or is cancelled, nothing changes. The commit waits for its turn on all its keys. A task that
    is cancelled during the commit sees the cancellation only after the commit has finished.
    """

    def __init__(self, transaction: Transaction[T], commit: Callable[..., Any]) -> None:
        self._transaction = transaction
        self._commit = commit

    def create_checkpoint(self, key: str, data: T) -> None:
        """Encodes now: later changes to `data` are not written."""
        self._transaction.create_checkpoint(key, data)

    @overload
    def update_checkpoint(self, key: str, change: Callable[[T], T]) -> None: ...
    @overload
    def update_checkpoint(self, key: str, change: Callable[[T], T], default: T) -> None: ...
    @overload
    def update_checkpoint(self, key: str, change: Callable[[T | None], T], default: None) -> None: ...
    def update_checkpoint(self, key: str, change: Callable[[Any], T], default: Any = NO_DEFAULT) -> None:
        """See Transaction.update_checkpoint. `change` runs in a thread, not in the event loop."""
        self._transaction.update_checkpoint(key, change, default)

    def remove_checkpoint(self, key: str) -> None:
        """An absent key is not an error."""
        self._transaction.remove_checkpoint(key)

    @property
    def written(self) -> Mapping[str, Checkpoint[T]]:
        """See Transaction."""
        return self._transaction.written

    def __len__(self) -> int:
        return len(self._transaction)

    async def __aenter__(self) -> AsyncTransaction[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._commit(self._transaction.keys, lambda _: self._transaction.__exit__(None, None, None))
