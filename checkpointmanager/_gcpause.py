"""Pauses the garbage collector while many objects are created that are all kept."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import AbstractContextManager

from ._locks import Unbroken


def gc_paused() -> AbstractContextManager[None]:
    """Disables the garbage collector inside the block. For building an index over many values that were just loaded.

    The collector would walk all new objects repeatedly, for nothing. It resumes even if a signal handler raises. Other
    threads go without it meanwhile.
    """
    return Unbroken(_paused())


def _paused() -> Generator[None, None, None]:
    paused = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if paused:
            gc.enable()
