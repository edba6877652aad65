"""Tells what a signal handler has raised from what the interrupted code raises by itself.

A handler may raise in the middle of any call, for example TimeoutError, which is an OSError. Code that takes an
exception for its own, such as an error of the data or of the disk, asks here first.
"""

from __future__ import annotations

import contextlib
import inspect
from types import FrameType, TracebackType


def pass_on_interruption(error: Exception) -> None:
    """Raise the error again if a signal handler raised it."""
    if _is_interruption(error):
        raise error


class ignored(contextlib.suppress):  # noqa: N801  (reads like contextlib.suppress)
    """Suppresses these errors, but never what a signal handler has raised."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return bool(super().__exit__(kind, error, trace)) and not _is_interruption(error)


def _is_interruption(error: BaseException | None) -> bool:
    trace = error.__traceback__ if error else None
    while trace:
        if _is_handler(trace.tb_frame):
            return True
        trace = trace.tb_next
    return False


def _is_handler(frame: FrameType) -> bool:
    """True for a signal handler: Python calls it with the frame that it interrupts, which no other function gets."""
    names, rest, _ = inspect.getargs(frame.f_code)
    given = [frame.f_locals.get(name) for name in names]
    more = frame.f_locals.get(rest) if rest else ()
    given += more if isinstance(more, tuple) else ()
    return frame.f_back is not None and any(value is frame.f_back for value in given)
