"""How long to go on: a moment in CI, for as long as it takes where somebody set CHECKPOINT_LONG=1."""

from __future__ import annotations

import os

LONG = os.environ.get("CHECKPOINT_LONG", "") not in ("", "0")


def times(usual: int, long: int) -> int:
    """How often: `usual`, or `long` in the long mode."""
    return long if LONG else usual
