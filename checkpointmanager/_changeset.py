"""Changes of several checkpoints that are collected in a with block and made when it ends: a batch or a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar, overload

from ._checkpoint import Checkpoint
from ._errors import BatchFailed, CheckpointError, CheckpointNotFound, TransactionFailed, UnstorableValue
from ._options import check_key
from ._reader import Found, Reader
from ._schema import Encoded, Schema
from ._store import Store
from ._writer import Changes, Writer
from .format import Header

T = TypeVar("T")

NO_DEFAULT: Final = object()  # a sentinel, because None is a valid default


class _Update(NamedTuple):
    change: Callable[[Any], Any]
    default: object


class _Create(NamedTuple):
    encoded: Encoded
    data: Any


_Step = _Create | _Update | None  # None: remove


class ChangeSet(Generic[T]):
    """Changes that are made when the with block ends; Batch and Transaction say how. If the block raises, none is made.

    After the block, even if it ended with BatchFailed, `written` has every checkpoint that is durable now, and every
    one that already had its new content.
    """

    _together: ClassVar[bool]

    def __init__(self, store: Store, schema: Schema[T], reader: Reader[T], writer: Writer) -> None:
        self._store = store
        self._schema = schema
        self._reader = reader
        self._writer = writer
        self._steps: dict[str, list[_Step]] = {}
        self.written: Mapping[str, Checkpoint[T]] = {}

    def create_checkpoint(self, key: str, data: T) -> None:
        """Encodes now: later changes to `data` are not written."""
        self._steps[check_key(key)] = [_Create(self._schema.encode(data), data)]

    def remove_checkpoint(self, key: str) -> None:
        """An absent key is not an error."""
        self._steps[check_key(key)] = [None]

    @property
    def keys(self) -> frozenset[str]:
        """The keys that will change."""
        return frozenset(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        steps, self._steps = self._steps, {}
        if kind is not None or not steps:
            return
        values: dict[str, Any] = {}
        changes: Changes = {}
        with self._writer.changing(*steps):
            for key, each in steps.items():
                changes[key], values[key] = self._outcome(key, each)
            done = self._writer.commit(changes, together=self._together)
        self.written = {
            key: self._reader.checkpoint(header, values[key], key in done.unchanged)
            for key, header in done.headers.items()
        }
        if done.failures:
            raise BatchFailed(self._store.path, done.failures)

    def _outcome(self, key: str, steps: list[_Step]) -> tuple[tuple[Encoded | None, Header | None], Any]:
        """The key's new content, for the writer and for the caller."""
        last = steps[-1]
        return ((last.encoded, None), last.data) if isinstance(last, _Create) else ((None, None), None)


class Batch(ChangeSet[T]):
    """A ChangeSet in which each checkpoint is replaced atomically; the batch as a whole is not.

    If a key changes several times, the last change counts. BatchFailed says what did not become durable.
    """

    _together = False


class Transaction(ChangeSet[T]):
    """A ChangeSet whose changes become durable together, or none of them does.

    Change functions run after the block has ended, while no other writer can change any of the keys; if one raises,
    nothing changes and the exception reaches the caller. Several changes of one key are applied in order.
    TransactionFailed names the key at fault, and says whether nothing changed or the outcome is in doubt.
    Readers may see the checkpoints change one after another.
    """

    _together = True

    @overload
    def update_checkpoint(self, key: str, change: Callable[[T], T]) -> None: ...
    @overload
    def update_checkpoint(self, key: str, change: Callable[[T], T], default: T) -> None: ...
    @overload
    def update_checkpoint(self, key: str, change: Callable[[T | None], T], default: None) -> None: ...
    def update_checkpoint(self, key: str, change: Callable[[Any], T], default: Any = NO_DEFAULT) -> None:
        """Like CheckpointManager.update_checkpoint; `change` runs after the block has ended."""
        self._steps.setdefault(check_key(key), []).append(_Update(change, default))

    def _outcome(self, key: str, steps: list[_Step]) -> tuple[tuple[Encoded | None, Header | None], Any]:
        if not isinstance(steps[-1], _Update):  # a creation or a removal replaces what was before it
            return super()._outcome(key, steps)
        first = steps[0]
        found = self._read(key) if isinstance(first, _Update) else None
        data: Any = found.data if found else NO_DEFAULT
        unknowns = found.unknowns if found else None
        if isinstance(first, _Create):
            data, unknowns = self._schema.decode(*first.encoded)  # a fresh copy, which the change function may mutate
        for step in steps:
            if isinstance(step, _Update):
                data = self._changed(key, step, data)
        try:
            encoded = self._schema.encode(data, unknowns)
        except UnstorableValue as error:
            raise self._failed(key, error) from error
        return (encoded, found.header if found else None), data

    def _read(self, key: str) -> Found[Any] | None:
        try:
            return self._reader.read(key)
        except CheckpointNotFound:
            return None
        except CheckpointError as error:
            raise self._failed(key, error) from error

    def _changed(self, key: str, update: _Update, data: Any) -> Any:
        """What the change function makes of `data`, or of its default if there is none."""
        if data is NO_DEFAULT and update.default is NO_DEFAULT:
            missing = CheckpointNotFound(key, self._store.path_of(key))
            raise self._failed(key, missing) from missing
        new = update.change(update.default if data is NO_DEFAULT else data)
        if new is None:
            none = UnstorableValue("$", "the change function returned None instead of the new value")
            raise self._failed(key, none) from none
        return new

    def _failed(self, key: str, error: CheckpointError) -> TransactionFailed:
        return TransactionFailed(key, self._store.path_of(key), error)
