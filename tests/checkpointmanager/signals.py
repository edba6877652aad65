"""A signal handler, usually one that raises, at every place where Python runs one, one place at a time.

Python looks for signals when a function begins, when a C function has returned, and when a loop goes round. Here a
signal is always pending, so the handler runs at each of these places; it counts them, raises at one, and has the
signal pending again after all others.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar
from unittest import mock

import pytest

from ..long import times
from .processes import LIMIT

STRIDE = times(5, 1)  # of the places; in the long mode each is tried

R = TypeVar("R")

# On 3.14 a handler that raises just after a lock was taken leaves it held, also a plain `with threading.Lock()`.
locks_survive_handlers = pytest.mark.skipif(sys.version_info[:2] == (3, 14), reason="cpython#148874")


class Interrupted(BaseException):
    """What the handler raises: like KeyboardInterrupt and SystemExit it is no Exception."""


class _Signal(int):
    """`pending` sends it: an attribute and not a call, since Python looks for signals right after a call."""

    pending = property(ctypes.PyDLL(None)["raise"])


_SIGNAL = _Signal(signal.SIGUSR1)


def _raise() -> None:
    raise Interrupted


class Handler:
    """Raises at place number `at` (from 0), and at each of the next `more` places."""

    def __init__(self, at: int, more: int = 0, does: Callable[[], object] = _raise) -> None:
        self.at, self.last = at, at + more
        self.does = does
        self.places = 0
        self.raised_at = ""
        self.armed = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.armed:
            return
        place, self.places = self.places, self.places + 1
        if place >= self.last:
            self.armed = False
        if place >= self.at:
            code = frame.f_code if frame else None
            self.raised_at += f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}; " if frame and code else "?; "
            try:
                self.does()
            finally:
                if self.armed:
                    _SIGNAL.pending  # noqa: B018
        else:
            _SIGNAL.pending  # noqa: B018


@contextmanager
def untraced() -> Iterator[None]:
    """Without coverage: its tracing of each line is one more place, and has locks that a handler can leave held."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        threading.settrace(of_threads)
        sys.settrace(tracer)


@contextmanager
def _handling(handler: Handler) -> Iterator[None]:
    with untraced():
        before = signal.signal(_SIGNAL, handler)
        try:
            yield
        finally:
            handler.armed = False
            signal.signal(_SIGNAL, before)


def called(act: Callable[[], object], does: Callable[[], object], at: int, more: int = 0) -> Handler:
    """Run `act` with a handler that does something at place number `at`. If there are fewer places, it does nothing."""
    handler = Handler(at, more, does)
    with _handling(handler):
        try:
            handler.armed = True
            _SIGNAL.pending  # noqa: B018
            act()
        finally:
            handler.armed = False
    return handler


def interrupted(act: Callable[[], object], at: int, more: int = 0) -> Handler:
    """The same with a handler that raises."""
    handler = Handler(at, more)
    with _handling(handler):
        try:
            handler.armed = True
            _SIGNAL.pending  # noqa: B018
            act()
            handler.armed = False
        except Interrupted:
            handler.armed = False
    return handler


def everywhere(act: Callable[[], Callable[[], object]], check: Callable[[], object], more: int = 0) -> int:
    """Interrupt what `act` returns at one place after another, and `check` after each; returns the number of places."""
    for at in itertools.count(0, STRIDE):
        handler = interrupted(act(), at, more)
        if not handler.raised_at:
            return at
        try:
            check()
        except BaseException as error:
            error.add_note(f"interrupted at place {at}: {handler.raised_at}")
            raise
    raise AssertionError


def raised_everywhere(prepare: Callable[[], Callable[[], object]], kind: Callable[[], Exception]) -> int:
    """Have a handler raise an error at one place after another of what `prepare` returns; returns their number.

    The caller must get that very error. Only what Python itself reports and forgets, in a finalizer, may be lost.
    """
    for place in itertools.count(0, STRIDE):
        alarm = kind()
        forgotten: list[BaseException | None] = []

        def fire(alarm: Exception = alarm) -> None:
            raise alarm

        work = prepare()
        with mock.patch.object(sys, "unraisablehook", lambda what, seen=forgotten: seen.append(what.exc_value)):
            try:
                raised_at = called(work, fire, place).raised_at
                if not raised_at:
                    return place
            except Exception as error:  # noqa: BLE001  (whatever it is, it must be the alarm)
                assert error is alarm, f"place {place}"  # noqa: PT017
                assert (error.__cause__, error.args) == (None, kind().args)  # noqa: PT017
            else:
                assert alarm in forgotten, f"lost at place {place}: {raised_at}"
    raise AssertionError


@contextmanager
def no_collector() -> Iterator[None]:
    """What a handler raises in a callback of the garbage collector never reaches anyone."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def in_time(work: Callable[[], R], seconds: float = LIMIT) -> R:
    """What `work` returns in another thread, which is left alone if it hangs."""
    results: list[R] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  (raised below)
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        stack = sys._current_frames().get(thread.ident or 0)
        where = f"{stack.f_code.co_filename}:{stack.f_lineno}" if stack else "?"
        raise AssertionError(f"hangs in {where}")
    if errors:
        raise errors[0]
    return results[0]
