"""Who changes a key holds it; who wants it meanwhile waits in line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest import mock

import pytest

from checkpointmanager._keylocks import KeyLocks

LIMIT = 20.0  # seconds, for a test that hangs


def waiting(locks: KeyLocks, key: str) -> int:
    return len(locks._lines.get(key, ()))


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
    assert not locks._lines


def test_another_key_does_not_wait() -> None:
    locks = KeyLocks()
    with locks.locked("a"), ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: locks.take(["b"])).result(LIMIT)


def test_who_waits_is_served_in_the_order_of_coming() -> None:
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
    assert not locks._lines


def test_callers_with_several_keys_never_wait_for_each_other_in_a_circle() -> None:
    locks = KeyLocks()

    def work(keys: tuple[str, ...]) -> None:
        for _ in range(300):
            with locks.locked(*keys):
                time.sleep(0)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, keys) for keys in (("a", "b"), ("b", "a"), ("b", "c", "a", "b"))]:
            done.result(LIMIT)
    assert not locks._lines


def test_who_raises_while_holding_gives_back_what_it_held() -> None:
    locks = KeyLocks()
    with pytest.raises(ZeroDivisionError), locks.locked("a", "b"):
        raise ZeroDivisionError
    assert not locks._lines
    with locks.locked("b"):
        pass


def test_more_may_not_be_taken_while_some_are_held() -> None:
    locks = KeyLocks()
    with locks.locked("a"), pytest.raises(RuntimeError, match="must not make others"):
        locks.take(["b"])
    with locks.locked("b"):
        pass


def test_who_is_interrupted_while_waiting_leaves_the_line_and_what_it_had() -> None:
    locks = KeyLocks()
    interrupted = threading.Event()

    class Turn:
        """A lock whose waiter is interrupted."""

        def __init__(self) -> None:
            self.acquired = False

        def acquire(self) -> None:
            if self.acquired:
                interrupted.set()
                raise KeyboardInterrupt
            self.acquired = True

    def work() -> None:
        with (
            mock.patch("checkpointmanager._keylocks.threading", SimpleNamespace(Lock=Turn)),
            pytest.raises(KeyboardInterrupt),
        ):
            locks.take(["a", "b"])

    with locks.locked("b"), ThreadPoolExecutor(1) as pool:
        pool.submit(work).result(LIMIT)
        assert interrupted.is_set()
        assert waiting(locks, "b") == 0
        assert "a" not in locks._lines
    assert not locks._lines


def test_who_is_interrupted_when_its_turn_has_come_passes_it_on() -> None:
    locks = KeyLocks()

    class Turn:
        """A lock whose waiter is interrupted just after it was let go."""

        def __init__(self) -> None:
            self.acquired = False
            self.released = threading.Event()

        def acquire(self) -> None:
            if self.acquired:
                assert self.released.wait(LIMIT)
                raise KeyboardInterrupt
            self.acquired = True

        def release(self) -> None:
            self.released.set()

    def work() -> None:
        with (
            mock.patch("checkpointmanager._keylocks.threading", SimpleNamespace(Lock=Turn)),
            pytest.raises(KeyboardInterrupt),
        ):
            locks.take(["a"])

    with ThreadPoolExecutor(1) as pool:
        with locks.locked("a"):
            done = pool.submit(work)
            until(lambda: waiting(locks, "a") == 1)
        done.result(LIMIT)
    assert not locks._lines
