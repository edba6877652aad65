"""Tells what a signal handler has raised from what the interrupted code raises by itself.

A handler may raise in the middle of any call, for example TimeoutError, which is an OSError. Code that takes an
exception for its own, such as an error of the data or of the disk, asks here first.
"""

from __future__ import annotations

import contextlib
from inspect import CO_VARARGS
from types import TracebackType


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
    """Python calls a handler with the frame that it interrupts, which no other function gets as an argument."""
    trace = error.__traceback__ if error else None
    while trace:
        frame, trace = trace.tb_frame, trace.tb_next
        code, given, interrupted = frame.f_code, frame.f_locals, frame.f_back
        named = code.co_argcount + code.co_kwonlyargcount
        for name in code.co_varnames[:named]:
            if interrupted and given.get(name) is interrupted:
                return True
        if interrupted and code.co_flags & CO_VARARGS:
            rest = given.get(code.co_varnames[named])
            if isinstance(rest, tuple) and any(value is interrupted for value in rest):
                return True
    return False
