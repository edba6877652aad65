"""Many changes, committed together when the with block ends."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from ._format.keys import check_key
from ._schema import Encoded, Schema

T = TypeVar("T")
Changes = dict[str, Encoded | None]  # None: remove


class Batch(Generic[T]):
    """Each checkpoint of a batch is replaced atomically, the batch as a whole is not.

    If the block raises, nothing is written. Of several changes of one key the last one counts.
    """

    def __init__(self, schema: Schema[T], commit: Callable[[Changes], None]) -> None:
        self._schema = schema
        self._commit = commit
        self._changes: Changes = {}

    def create_checkpoint(self, key: str, data: T) -> None:
        """Encoded now: what is changed in `data` later is not written."""
        self._changes[check_key(key)] = self._schema.encode(data)

    def remove_checkpoint(self, key: str) -> None:
        self._changes[check_key(key)] = None

    def __len__(self) -> int:
        return len(self._changes)

    def __enter__(self) -> Batch[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            changes, self._changes = self._changes, {}
            self._commit(changes)
