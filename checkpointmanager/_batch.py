"""Many changes, committed together when the with block ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Generic, NamedTuple, TypeVar

from ._checkpoint import Checkpoint
from ._errors import BatchFailed, CheckpointError
from ._options import check_key
from ._schema import Encoded, Schema
from .format import Header

T = TypeVar("T")
# By key: the new content (None: a removal), and the header of a good checkpoint that was just read.
Changes = dict[str, tuple[Encoded | None, Header | None]]


class Committed(NamedTuple):
    """Headers that are durable now, keys that were already up to date, and failures."""

    headers: Mapping[str, Header]
    unchanged: frozenset[str]
    failures: Mapping[str, CheckpointError]


class Batch(Generic[T]):
    """Each checkpoint of a batch is replaced atomically; the batch as a whole is not.

    If the block raises, nothing is written. If a key changes several times, the last change counts. After the block,
    even if it ended with BatchFailed, `written` has every checkpoint that is durable.
    """

    def __init__(
        self,
        path: str,
        schema: Schema[T],
        commit: Callable[[Changes], Committed],
        checkpoint: Callable[[Header, T, bool], Checkpoint[T]],
    ) -> None:
        self._path = path
        self._schema = schema
        self._commit = commit
        self._checkpoint = checkpoint
        self._changes: Changes = {}
        self._values: dict[str, T] = {}
        self.written: Mapping[str, Checkpoint[T]] = {}

    def create_checkpoint(self, key: str, data: T) -> None:
        """Encodes now: later changes to `data` are not written."""
        self._changes[check_key(key)] = (self._schema.encode(data), None)
        self._values[key] = data

    def remove_checkpoint(self, key: str) -> None:
        """Remove a checkpoint when the block ends. An absent key is not an error."""
        self._changes[check_key(key)] = (None, None)

    @property
    def keys(self) -> frozenset[str]:
        """The keys that the batch will change."""
        return frozenset(self._changes)

    def __len__(self) -> int:
        return len(self._changes)

    def __enter__(self) -> Batch[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        changes, self._changes = self._changes, {}
        values, self._values = self._values, {}
        done = self._commit(changes)
        self.written = {
            key: self._checkpoint(header, values[key], key in done.unchanged) for key, header in done.headers.items()
        }
        if done.failures:
            raise BatchFailed(self._path, done.failures)
