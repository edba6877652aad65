"""Pauses the garbage collector while many objects are created that are all kept."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import AbstractContextManager

from ._unbroken import Unbroken


def gc_paused() -> AbstractContextManager[None]:
    """The collector would walk all of them repeatedly, for nothing. It resumes even if a signal handler raises."""
    return Unbroken(_paused())


def _paused() -> Generator[None, None, None]:
    paused = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if paused:
            gc.enable()
