"""Tells what a signal handler has raised from what the interrupted code raises by itself.

A handler may raise in the middle of any call, for example TimeoutError, which is an OSError. Code that takes an
exception for its own, such as an error of the data or of the disk, asks here first.
"""

from __future__ import annotations

import inspect
from types import FrameType


def pass_on_interruption(error: Exception) -> None:
    """Raise the error again if a signal handler raised it."""
    trace = error.__traceback__
    while trace:
        if _is_handler(trace.tb_frame):
            raise error
        trace = trace.tb_next


def _is_handler(frame: FrameType) -> bool:
    """True for a signal handler: Python calls it with the frame that it interrupts, which no other function gets."""
    names, rest, _ = inspect.getargs(frame.f_code)
    given = [frame.f_locals.get(name) for name in names]
    more = frame.f_locals.get(rest) if rest else ()
    given += more if isinstance(more, tuple) else ()
    return frame.f_back is not None and any(value is frame.f_back for value in given)
