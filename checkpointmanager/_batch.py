"""Many changes, committed together when the with block ends."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Generic, TypeVar

from ._checkpoint import Checkpoint
from ._errors import BatchFailed
from ._options import check_key
from ._reader import Reader
from ._schema import Schema
from ._writer import Changes, Writer

T = TypeVar("T")


class Batch(Generic[T]):
    """Each checkpoint of a batch is replaced atomically; the batch as a whole is not.

    If the block raises, nothing is written. If a key changes several times, the last change counts. After the block,
    even if it ended with BatchFailed, `written` has every checkpoint that is durable.
    """

    def __init__(self, path: str, schema: Schema[T], reader: Reader[T], writer: Writer) -> None:
        self._path = path
        self._schema = schema
        self._reader = reader
        self._writer = writer
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
        with self._writer.changing(*changes):
            done = self._writer.commit(changes, together=False)
        self.written = {
            key: self._reader.checkpoint(header, values[key], key in done.unchanged)
            for key, header in done.headers.items()
        }
        if done.failures:
            raise BatchFailed(self._path, done.failures)
