"""Changes to several checkpoints that happen together or not at all, when the with block ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

from ._checkpoint import Checkpoint
from ._errors import CheckpointError, CheckpointNotFound, TransactionFailed, UnstorableValue
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


class Transaction(Generic[T]):
    """All changes of the block become durable together, or none of them does.

    If the block raises, nothing changes. Change functions run after the block has ended, while no other writer can
    change any of the keys; if one raises, nothing changes and the exception reaches the caller. Several changes of
    one key are applied in order. TransactionFailed names the key at fault, and says whether nothing changed, the
    outcome is in doubt, or the transaction is committed and will be completed later.

    Readers may see the checkpoints change one after another. After the block, `written` has every checkpoint that
    was written, and every one that already had its new content.
    """

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

    @overload
    def update_checkpoint(self, key: str, change: Callable[[T], T]) -> None: ...
    @overload
    def update_checkpoint(self, key: str, change: Callable[[T], T], default: T) -> None: ...
    @overload
    def update_checkpoint(self, key: str, change: Callable[[T | None], T], default: None) -> None: ...
    def update_checkpoint(self, key: str, change: Callable[[Any], T], default: Any = NO_DEFAULT) -> None:
        """Like CheckpointManager.update_checkpoint; `change` runs after the block has ended."""
        self._steps.setdefault(check_key(key), []).append(_Update(change, default))

    def remove_checkpoint(self, key: str) -> None:
        """An absent key is not an error."""
        self._steps[check_key(key)] = [None]

    @property
    def keys(self) -> frozenset[str]:
        """The keys that the transaction will change."""
        return frozenset(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __enter__(self) -> Transaction[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        steps, self._steps = self._steps, {}
        if kind is None and steps:
            self._commit(steps)

    def _commit(self, steps: Mapping[str, list[_Step]]) -> None:
        values: dict[str, Any] = {}
        outcomes: Changes = {}
        with self._writer.changing(*steps):
            for key in sorted(steps):
                outcomes[key], values[key] = self._outcome(key, steps[key])
            done = self._writer.commit(outcomes, together=True)
        self.written = {
            key: self._reader.checkpoint(header, values[key], key in done.unchanged)
            for key, header in done.headers.items()
        }

    def _outcome(self, key: str, steps: list[_Step]) -> tuple[tuple[Encoded | None, Header | None], Any]:
        """The key's new content, for the writer and for the caller."""
        first = steps[0]
        if len(steps) == 1 and not isinstance(first, _Update):
            return ((first.encoded, None), first.data) if first else ((None, None), None)
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
