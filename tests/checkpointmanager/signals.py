"""A signal handler, usually one that raises, at every place where Python runs one, one place at a time.

Python looks for signals when a function begins, when a C function has returned, and when a loop goes round. Here a
signal is always pending, so the handler runs at each of these places; it counts them, raises at one, and has the
signal pending again after all others.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TypeVar
from unittest import mock

import pytest

from ..long import LONG, times
from .processes import LIMIT

STRIDE = times(5, 1)  # of the places; in the long mode each is tried

R = TypeVar("R")

# On 3.14 a handler that raises just after a lock was taken leaves it held, also a plain `with threading.Lock()`.
locks_survive_handlers = pytest.mark.skipif(sys.version_info[:2] == (3, 14), reason="cpython#148874")


class Interrupted(BaseException):
    """Like KeyboardInterrupt and SystemExit it is no Exception."""


def alarm() -> TimeoutError:
    """An OSError and the usual choice for SIGALRM. It must never pass for an error of the disk."""
    return TimeoutError("alarm")


# What a handler raises.
KINDS: tuple[Callable[[], BaseException], ...] = (Interrupted, alarm, ValueError)


class _Signal(int):
    """`pending` sends it: an attribute and not a call, since Python looks for signals right after a call."""

    pending = property(ctypes.PyDLL(None)["raise"])


_SIGNAL = _Signal(signal.SIGUSR1)


class Handler:
    """Does something at place number `at` (from 0), and at each of the next `more` places."""

    def __init__(self, at: int, more: int, does: Callable[[], object]) -> None:
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
def unlogged() -> Iterator[None]:
    """Without logging: before Python 3.13 a handler that raises there can leave a lock held, also for later tests."""
    logger = logging.getLogger("checkpointmanager")
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


@contextmanager
def _handling(handler: Handler) -> Iterator[None]:
    with untraced(), unlogged():
        before = signal.signal(_SIGNAL, handler)
        try:
            yield
        finally:
            handler.armed = False
            signal.signal(_SIGNAL, before)


def run(work: Callable[[], object], handler: Handler) -> None:
    """Run `work` with this handler. If there are fewer places, it does nothing."""
    with _handling(handler):
        try:
            handler.armed = True
            _SIGNAL.pending  # noqa: B018
            work()
        finally:
            handler.armed = False


def everywhere(
    act: Callable[[], Callable[[], object]],
    check: Callable[[], object] = lambda: None,
    more: int = 0,
    kinds: Sequence[Callable[[], BaseException]] = KINDS,
) -> int:
    """Interrupt what `act` returns at one place after another, and `check` after each; returns the number of places.

    The caller must get the very error that was raised. Only what Python itself reports and forgets, in a finalizer, may
    be lost.
    """
    for place, kind in _places(kinds):
        raised: list[BaseException] = []
        forgotten: list[BaseException | None] = []
        handler = Handler(place, more, partial(_raise, kind, raised))
        work = act()
        with _forgotten_into(forgotten), no_collector():
            caught = _error_of(work, handler)
        if not raised:
            assert caught is None
            return place
        try:
            assert caught in raised or not {*raised}.isdisjoint(forgotten), f"lost, or replaced by {caught!r}"
            if caught:
                assert (caught.__cause__, caught.args) == (None, kind().args)
            check()
        except BaseException as error:
            error.add_note(f"interrupted at place {place}: {handler.raised_at}")
            raise
    raise AssertionError


def _places(kinds: Sequence[Callable[[], BaseException]]) -> Iterator[tuple[int, Callable[[], BaseException]]]:
    """Each place with one of the kinds in turn; in the long mode with all of them."""
    for number, place in enumerate(itertools.count(0, STRIDE)):
        for kind in kinds if LONG else [kinds[number % len(kinds)]]:
            yield place, kind


def _raise(kind: Callable[[], BaseException], raised: list[BaseException]) -> None:
    raised.append(kind())
    raise raised[-1]


@contextmanager
def _forgotten_into(forgotten: list[BaseException | None]) -> Iterator[None]:
    with mock.patch.object(sys, "unraisablehook", lambda what: forgotten.append(what.exc_value)):
        yield


def _error_of(work: Callable[[], object], handler: Handler) -> BaseException | None:
    try:
        run(work, handler)
    except BaseException as error:  # noqa: BLE001  (whatever it is, it must be what the handler raised)
        link: BaseException | None = error
        while link:
            link.__traceback__ = None  # its frames would keep the objects of `work` alive
            link = link.__context__
        return error
    return None


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
