"""How long tests run: a moment in CI, as long as it takes with CHECKPOINT_LONG=1."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

LONG = os.environ.get("CHECKPOINT_LONG", "") not in ("", "0")


def times(usual: int, long: int) -> int:
    """How often: `usual`, or `long` in the long mode."""
    return long if LONG else usual


def sample(cases: Iterable[T], one_in: int) -> list[T]:
    """One in so many, always the same ones; in the long mode all."""
    return list(cases)[:: times(one_in, 1)]
