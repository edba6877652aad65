"""items() and values() of a cache."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, ValuesView
from typing import TYPE_CHECKING, TypeVar

from ._cacheentry import value_of

if TYPE_CHECKING:
    from ._cache import CheckpointCache

T = TypeVar("T")


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
