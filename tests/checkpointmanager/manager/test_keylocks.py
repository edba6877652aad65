"""A change holds its keys; other changes of the same keys wait in line."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from checkpointmanager import KeyLocks

from ..processes import in_forked_child
from ..signals import Interrupted, everywhere, in_time

LIMIT = 20.0  # seconds, for a test that hangs


def waiting(locks: KeyLocks, key: str) -> int:
    """How many callers wait for the holder of the key."""
    turn, count = locks._last.get(key), 0
    while turn and (before := turn._before.get(key)):
        turn, count = before, count + 1
    return count


def hold(locks: KeyLocks, *keys: str) -> None:
    with locks.locked(*keys):
        pass


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_one_key_is_held_by_one_thread_at_a_time() -> None:
    locks = KeyLocks()
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            with locks.locked("a"):
                inside += 1
                most = max(most, inside)
                time.sleep(0)
                inside -= 1

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work) for _ in range(8)]:
            done.result(LIMIT)
    assert most == 1
    assert not locks._last


def test_another_key_does_not_wait() -> None:
    locks = KeyLocks()
    with locks.locked("a"), ThreadPoolExecutor(1) as pool:
        pool.submit(hold, locks, "b").result(LIMIT)


def test_waiting_callers_are_served_in_the_order_of_arrival() -> None:
    locks = KeyLocks()
    served: list[int] = []

    def work(number: int) -> None:
        with locks.locked("a"):
            served.append(number)

    with ThreadPoolExecutor(5) as pool, locks.locked("a"):
        for number in range(5):
            pool.submit(work, number)
            until(lambda: waiting(locks, "a") == number + 1)  # noqa: B023
    assert served == [0, 1, 2, 3, 4]
    assert not locks._last


def test_callers_with_several_keys_never_wait_for_each_other_in_a_circle() -> None:
    locks = KeyLocks()

    def work(keys: tuple[str, ...]) -> None:
        for _ in range(300):
            with locks.locked(*keys):
                time.sleep(0)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, keys) for keys in (("a", "b"), ("b", "a"), ("b", "c", "a", "b"))]:
            done.result(LIMIT)
    assert not locks._last


def test_a_holder_that_raises_gives_back_what_it_held() -> None:
    locks = KeyLocks()
    with pytest.raises(ZeroDivisionError), locks.locked("a", "b"):
        raise ZeroDivisionError
    assert not locks._last
    with locks.locked("b"):
        pass


def test_more_may_not_be_taken_while_some_are_held() -> None:
    locks = KeyLocks()
    with locks.locked("a"), pytest.raises(RuntimeError, match="must not make others"):
        hold(locks, "b")
    with locks.locked("b"):
        pass


def test_a_refusal_does_not_allow_the_next_attempt() -> None:
    locks = KeyLocks()
    with locks.locked("a"):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="must not make others"):
                hold(locks, "b")
    hold(locks, "a", "b")


@contextmanager
def held_elsewhere(locks: KeyLocks, key: str) -> Iterator[None]:
    """Inside the block another thread holds the key."""
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        with locks.locked(key):
            inside.set()
            assert go_on.wait(LIMIT)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        assert inside.wait(LIMIT)
        try:
            yield
        finally:
            go_on.set()
        done.result(LIMIT)


@contextmanager
def a_signal_when(condition: Callable[[], object]) -> Iterator[None]:
    """The main thread, which waits inside, gets a signal whose handler raises."""

    def handler(_: int, __: object) -> None:
        raise Interrupted

    def send() -> None:
        until(condition)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(send)
            with pytest.raises(Interrupted):
                yield
            sent.result(LIMIT)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_caller_interrupted_while_waiting_leaves_the_line_and_what_it_held() -> None:
    locks = KeyLocks()
    with held_elsewhere(locks, "b"):
        with a_signal_when(lambda: waiting(locks, "b") == 1):
            hold(locks, "a", "b")
        assert waiting(locks, "b") == 0
        assert set(locks._last) == {"b"}
    assert not locks._last


def test_a_caller_behind_an_interrupted_one_still_waits_for_the_holder() -> None:
    locks = KeyLocks()
    with ThreadPoolExecutor(1) as pool:
        with held_elsewhere(locks, "a"):
            behind: list[Future[None]] = []

            def join_the_line() -> bool:
                if waiting(locks, "a") == 1 and not behind:
                    behind.append(pool.submit(hold, locks, "a"))
                return waiting(locks, "a") == 2

            with a_signal_when(join_the_line):
                hold(locks, "a")
            with pytest.raises(TimeoutError):
                behind[0].result(0.1)
        behind[0].result(LIMIT)
    assert not locks._last


def test_a_handler_that_raises_anywhere_leaves_no_key_held() -> None:
    locks = KeyLocks()

    def check() -> None:
        in_time(lambda: hold(locks, "a", "b"))
        hold(locks, "b", "a")
        assert not locks._last

    for keys, more in itertools.product((["a"], ["a", "b"]), range(4)):
        assert everywhere(lambda keys=keys: lambda: hold(locks, *keys), check, more) > 20  # type: ignore[misc]


def test_in_a_forked_child_the_keys_of_other_threads_are_free() -> None:
    locks = KeyLocks()
    with held_elsewhere(locks, "a"), held_elsewhere(locks, "b"):
        in_forked_child(lambda: hold(locks, "a", "b"))
        assert waiting(locks, "a") == 0
    hold(locks, "a", "b")


def test_a_child_forked_by_a_holder_holds_what_it_held() -> None:
    locks = KeyLocks()

    def in_child() -> None:
        with pytest.raises(RuntimeError, match="must not make others"):
            hold(locks, "b")
        with ThreadPoolExecutor(1) as pool:
            waiter = pool.submit(hold, locks, "a")
            until(lambda: waiting(locks, "a") == 1)
            assert not waiter.done()
            os._exit(42)

    with locks.locked("a"):
        child = os.fork()
        if not child:
            try:
                in_child()
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert not locks._last
