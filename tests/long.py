"""How long tests run: a moment in CI, as long as it takes with CHECKPOINT_LONG=1."""

from __future__ import annotations

import os

LONG = os.environ.get("CHECKPOINT_LONG", "") not in ("", "0")


def times(usual: int, long: int) -> int:
    """How often: `usual`, or `long` in the long mode."""
    return long if LONG else usual
