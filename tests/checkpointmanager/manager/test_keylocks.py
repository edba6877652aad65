"""A change holds its keys; other changes of the same keys wait."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from checkpointmanager import KeyLocks

from ..processes import LIMIT, in_forked_child
from ..signals import Interrupted, everywhere, in_time, locks_survive_handlers

MANY = [f"key-{number}" for number in range(5000)]  # more than there are locks


def hold(locks: KeyLocks, *keys: str) -> None:
    with locks.locked(*keys):
        pass


def test_one_key_is_held_by_one_thread_at_a_time() -> None:
    locks = KeyLocks()
    inside = most = 0

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


def test_another_key_does_not_wait() -> None:
    locks = KeyLocks()
    with locks.locked("a"), ThreadPoolExecutor(1) as pool:
        pool.submit(hold, locks, "b").result(LIMIT)


def test_callers_with_several_keys_never_wait_for_each_other_in_a_circle() -> None:
    locks = KeyLocks()

    def work(keys: tuple[str, ...]) -> None:
        for _ in range(300):
            with locks.locked(*keys):
                time.sleep(0)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, keys) for keys in (("a", "b"), ("b", "a"), ("b", "c", "a", "b"))]:
            done.result(LIMIT)


def test_any_number_of_keys_can_be_held_at_once() -> None:
    locks = KeyLocks()
    with ThreadPoolExecutor(1) as pool:
        with locks.locked(*MANY):
            waiting = pool.submit(hold, locks, MANY[7])
            with pytest.raises(TimeoutError):
                waiting.result(0.05)
        waiting.result(LIMIT)


def test_no_key_at_all_is_fine() -> None:
    hold(KeyLocks())


def test_more_may_not_be_taken_while_some_are_held() -> None:
    locks = KeyLocks()
    for held in (["a"], ["a", "b"]):
        with locks.locked(*held):
            for wanted in ("a", "other"):
                with pytest.raises(RuntimeError, match="must not make others"):
                    hold(locks, wanted)
    hold(locks, "a", "other")


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


def test_a_caller_interrupted_while_waiting_gives_back_what_it_held() -> None:
    locks = KeyLocks()

    def handler(_: int, __: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with held_elsewhere(locks, "b"):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Interrupted):
                hold(locks, "a", "b")
            in_time(lambda: hold(locks, "a"))
        in_time(lambda: hold(locks, "a", "b"))
    finally:
        signal.signal(signal.SIGALRM, before)


@locks_survive_handlers
def test_a_handler_that_raises_anywhere_leaves_no_key_held() -> None:
    locks = KeyLocks()

    def check() -> None:
        in_time(lambda: hold(locks, "a", "b"))
        hold(locks, "b", "a")

    for keys, more in itertools.product((["a"], ["a", "b"]), range(4)):
        assert everywhere(lambda keys=keys: lambda: hold(locks, *keys), check, more) > 3  # type: ignore[misc]


def test_in_a_forked_child_the_keys_of_other_threads_are_free() -> None:
    locks = KeyLocks()
    with held_elsewhere(locks, "a"), held_elsewhere(locks, "b"):
        in_forked_child(lambda: hold(locks, "a", "b"))
    hold(locks, "a", "b")
