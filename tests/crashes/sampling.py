"""Which of the many disks are examined: all with CHECKPOINT_LONG=1, otherwise a sample that is always the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from checkpointmanager.testing import every_crash
from tests.long import LONG

from .oracle import check

T = TypeVar("T")
# The n-th disturbance of a scenario, and a list that tells, once it has run, whether it had so many calls.
Disturbed = tuple[Callable[[Any], object], list[bool]]

FIRST = 8  # are all examined
EACH = 37  # of the others, one in so many


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


def states_after(disturbed: Callable[[int], Disturbed], numbers: Iterable[int], **options: Any) -> tuple[int, int]:
    """Check the power losses after each disturbance until there is none: the number of disks, and the last number."""
    states = number = 0
    for number in numbers:
        act, met = disturbed(number)
        crashes = every_crash(act, **options)
        if not met[0]:
            break
        states += crashes.check(sampled(check, first=0)).states
    return states, number
