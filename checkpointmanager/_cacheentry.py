"""What a cache knows about one key: its value, why it has none, or what a failed change may have left on disk.

Also the views of all entries that items() and values() return.
"""

from __future__ import annotations

import copy
from collections.abc import ItemsView, Iterator, ValuesView
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeVar, cast

from ._errors import CheckpointError

if TYPE_CHECKING:
    from ._cache import CheckpointCache

T = TypeVar("T")


class Removal(Enum):
    """Stands in for a value when a change removes the key, and when a removal is in doubt."""

    REMOVED = "removed"  # the only member


REMOVED: Final = Removal.REMOVED
"""Return it from the function passed to CheckpointCache.change to remove a key."""


class InDoubt(NamedTuple, Generic[T]):
    """Failed changes of one key that may be on disk: `error` is the last failure, `outcomes` are all the new values."""

    error: CheckpointError  # of the last change that failed
    outcomes: tuple[T | Literal[Removal.REMOVED], ...]

    def __repr__(self) -> str:
        return f"InDoubt({type(self.error).__name__}, {len(self.outcomes)} outcomes)"


class CacheEntry(NamedTuple, Generic[T]):
    """What is known about one key. Its repr never shows values.

    value           the last acknowledged value, if `generation` is not 0
    generation      the generation of the value; 0 if there is no value, because the file cannot be trusted, or is
                    new and in doubt
    from_this_boot  whether the value was written since the last reboot; None if unknown
    problem         why the file cannot be trusted
    previous        the value of the generation before such a file: evidence, not a replacement
    in_doubt        what the disk may hold instead
    """

    key: str
    value: T | None
    generation: int
    from_this_boot: bool | None = None
    problem: CheckpointError | None = None
    previous: T | None = None
    in_doubt: InDoubt[T] | None = None

    def __repr__(self) -> str:
        problem = f", {type(self.problem).__name__}" if self.problem else ""
        doubt = f", {self.in_doubt!r}" if self.in_doubt else ""
        return f"CacheEntry({self.key!r}, generation {self.generation}{problem}{doubt})"


def value_of(entry: CacheEntry[T]) -> T:
    """The value, or its problem as an exception of its own."""
    if not entry.generation:
        raise copy.copy(problem_of(entry))
    return entry.value  # type: ignore[return-value]  # T, since there is a generation; cast() would cost each read a call


def problem_of(entry: CacheEntry[Any]) -> CheckpointError:
    assert entry.problem or entry.in_doubt
    return entry.problem or cast("InDoubt[Any]", entry.in_doubt).error


class CacheItems(ItemsView[str, T]):
    """Reads each entry once, so that a key which another thread deletes meanwhile raises nothing."""

    def __init__(self, cache: CheckpointCache[T]) -> None:
        super().__init__(cache)
        self._cache = cache

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return ((entry.key, value_of(entry)) for entry in self._cache.entries())


class CacheValues(ValuesView[T]):
    """The same for values."""

    def __init__(self, cache: CheckpointCache[T]) -> None:
        super().__init__(cache)
        self._cache = cache

    def __iter__(self) -> Iterator[T]:
        return map(value_of, self._cache.entries())

    def __contains__(self, value: object) -> bool:
        return value in list(self)
