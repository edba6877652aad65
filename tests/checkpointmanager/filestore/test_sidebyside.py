"""The same call for many things, in a few threads."""

from __future__ import annotations

import _thread
import gc
import threading
import weakref
from collections.abc import Callable
from unittest import mock

import pytest

from checkpointmanager._filestore.sidebyside import side_by_side


def test_it_keeps_the_order_and_makes_each_call_once() -> None:
    seen: list[int] = []
    lock = threading.Lock()

    def call(number: int) -> int:
        with lock:
            seen.append(number)
        return number * number

    for count in (0, 1, 2, 3, 100):
        del seen[:]
        assert side_by_side(call, range(count), 4) == [number * number for number in range(count)]
        assert sorted(seen) == list(range(count))


def test_it_waits_for_the_calls_under_way_before_it_raises() -> None:
    started, ended = threading.Event(), threading.Event()

    def call(_: int) -> None:
        if threading.current_thread() is threading.main_thread():
            assert started.wait(20)
            raise KeyboardInterrupt
        started.set()
        threading.Event().wait(0.2)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        side_by_side(call, range(2), 2)
    assert ended.is_set()


def test_it_raises_what_a_helper_raised() -> None:
    def call(_: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ZeroDivisionError
        threading.Event().wait(0.01)

    with pytest.raises(ZeroDivisionError):
        side_by_side(call, range(200), 2)


class Disk:
    """What a call refers to; fails in a thread that is not the caller's, if it is broken."""

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken

    def sync(self, _: int) -> None:
        if threading.current_thread() is threading.main_thread():
            threading.Event().wait(0.01)
        elif self.broken:
            raise ZeroDivisionError


@pytest.mark.parametrize("broken", [False, True], ids=["calls return", "a call raises"])
def test_a_helper_that_ends_late_refers_to_nothing_of_the_caller(broken: bool) -> None:
    """Otherwise a finalizer could run in that thread later, and close a descriptor that is no longer its own."""
    start, may_end = _thread.start_new_thread, threading.Event()

    def ending_late(helper: Callable[..., None], arguments: tuple[object, ...]) -> int:
        def run() -> None:
            helper(*arguments)
            may_end.wait(20)

        return start(run, ())

    def sync_all() -> weakref.ref[Disk]:
        disk = Disk(broken=broken)
        try:
            side_by_side(disk.sync, range(20), 3)
        except ZeroDivisionError:
            assert broken
        return weakref.ref(disk)

    with mock.patch.object(_thread, "start_new_thread", ending_late):
        disk = sync_all()
    gc.collect()
    try:
        assert disk() is None
    finally:
        may_end.set()
