"""Which of the many disks are examined: all with CHECKPOINT_LONG=1, otherwise a sample that is always the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tests.long import LONG

T = TypeVar("T")

FIRST = 12  # are all examined
EACH = 29  # of the others, one in so many


def some(found: Iterable[T]) -> Iterator[T]:
    """One in `EACH`; in the long form all."""
    return itertools.islice(found, 0, None, 1 if LONG else EACH)


def sampled(check: Callable[[T], object], *, first: int = FIRST, each: int = EACH) -> Callable[[T], None]:
    """`check`, called for the first few and then for one in `each`; in the long form for all."""
    numbers = itertools.count()

    def examine(found: T) -> None:
        number = next(numbers)
        if LONG or number < first or number % each == 0:
            check(found)

    return examine
