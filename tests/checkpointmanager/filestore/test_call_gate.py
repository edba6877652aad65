"""The gate that every call passes: closing waits for all calls inside, and for nothing else.

What a fork does to it is in test_fork.py, closing a whole manager in test_ownership.py.
"""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TypeVar

import pytest

from checkpointmanager import ManagerClosed
from checkpointmanager._locks import CallGate, is_mine

from ..processes import LIMIT, until
from ..signals import called, everywhere, in_time, interrupted, locks_survive_handlers

R = TypeVar("R")


class Visitor:
    """A thread that goes in and out once, then stays inside until `leave` is called."""

    def __init__(self, gate: CallGate, then: Callable[[], object]) -> None:
        self._inside, self._go = threading.Event(), threading.Event()
        self._gate, self._then = gate, then
        self._visit = in_a_thread(self._stay)
        until(lambda: self._inside.is_set() or self._visit.done())

    def leave(self) -> None:
        self._go.set()
        self._visit.result(LIMIT)

    def _stay(self) -> None:
        with self._gate:
            with self._gate:
                pass
            self._inside.set()
            assert self._go.wait(LIMIT)
            self._then()


Visit = Callable[..., Visitor]


class Closer:
    """Closes the gate when called, and counts how often it was given back."""

    def __init__(self, gate: CallGate) -> None:
        self._gate = gate
        self.given_back = 0

    def __call__(self) -> None:
        self._gate.close(self._count)

    def _count(self) -> None:
        self.given_back += 1


@pytest.fixture
def gate() -> CallGate:
    return CallGate("/var/lib/claims")


@pytest.fixture
def close(gate: CallGate) -> Closer:
    return Closer(gate)


@pytest.fixture
def visit(gate: CallGate) -> Visit:
    return lambda then=lambda: None: Visitor(gate, then)


def in_a_thread(work: Callable[[], R]) -> Future[R]:
    """The thread does not keep the test alive if it waits for ever."""
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised by result()
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def is_barred(gate: CallGate) -> bool:
    try:
        with gate:
            return False
    except ManagerClosed:
        return True


def test_closing_waits_for_all_threads_inside(gate: CallGate, visit: Visit, close: Closer) -> None:
    first, second = visit(), visit()
    closing = in_a_thread(close)
    until(lambda: is_barred(gate))
    first.leave()
    assert not closing.done()
    second.leave()
    closing.result(LIMIT)
    assert close.given_back == 1


def test_a_thread_inside_may_go_on_while_another_closes(gate: CallGate, visit: Visit, close: Closer) -> None:
    def another_call() -> None:
        gate.check()
        with gate:
            assert not close.given_back

    visitor = visit(another_call)
    closing = in_a_thread(close)
    until(lambda: is_barred(gate))
    visitor.leave()
    closing.result(LIMIT)


def test_closing_does_not_wait_for_a_thread_that_has_left(visit: Visit, close: Closer) -> None:
    visit().leave()
    in_a_thread(close).result(LIMIT)
    assert close.given_back == 1


def test_only_the_first_closes(gate: CallGate, close: Closer) -> None:
    close()
    close()
    assert close.given_back == 1
    for refused in (gate.check, gate.__enter__):
        with pytest.raises(ManagerClosed, match="/var/lib/claims: the manager is closed; open another"):
            refused()


def test_a_second_closer_returns_when_it_is_given_back(gate: CallGate, visit: Visit, close: Closer) -> None:
    visitor = visit()
    first = in_a_thread(close)
    until(lambda: is_barred(gate))
    second = in_a_thread(close)
    with pytest.raises(TimeoutError):
        second.result(0.1)
    visitor.leave()
    first.result(LIMIT)
    second.result(LIMIT)
    assert close.given_back == 1


def test_closing_from_inside_does_not_wait_for_the_closer_that_waits_for_this_thread(
    gate: CallGate, visit: Visit, close: Closer
) -> None:
    visitor = visit(close)
    closing = in_a_thread(close)
    until(lambda: is_barred(gate))
    visitor.leave()
    closing.result(LIMIT)
    assert close.given_back == 1


def test_a_thread_inside_cannot_close_and_bars_no_other(gate: CallGate, close: Closer) -> None:
    with gate, pytest.raises(ManagerClosed, match="cannot be closed from within one of its own calls"):
        close()
    assert not is_barred(gate)
    close()
    assert close.given_back == 1


@contextmanager
def handled(handler: Callable[[], object], when: Callable[[], object]) -> Iterator[None]:
    """The main thread, which waits inside, gets a signal with this handler."""

    def send() -> None:
        until(when)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    try:
        sent = in_a_thread(send)
        yield
        sent.result(LIMIT)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_after_an_interrupt_while_it_waits_it_is_open_and_the_next_one_closes(
    gate: CallGate, visit: Visit, close: Closer
) -> None:
    second: list[Future[None]] = []

    def interrupt() -> None:
        second.append(in_a_thread(close))
        with suppress(TimeoutError):
            second[0].result(0.1)  # it must not rely on the interrupted close
        raise KeyboardInterrupt

    visitor = visit()
    with handled(interrupt, lambda: is_barred(gate)), pytest.raises(KeyboardInterrupt):
        close()
    assert not second[0].done()
    visitor.leave()
    second[0].result(LIMIT)
    assert close.given_back == 1


def test_an_interrupt_while_it_waits_leaves_it_open(gate: CallGate, visit: Visit, close: Closer) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    visitor = visit()
    with handled(interrupt, lambda: is_barred(gate)), pytest.raises(KeyboardInterrupt):
        close()
    assert not is_barred(gate)
    visitor.leave()
    close()
    assert close.given_back == 1


def test_after_an_interrupt_while_it_is_given_back_the_next_close_gives_it_back(gate: CallGate) -> None:
    attempts: list[int] = []

    def give_back() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gate.close(give_back)
    assert is_barred(gate)
    gate.close(give_back)
    gate.close(give_back)
    assert len(attempts) == 2


def test_a_signal_handler_may_close_while_its_thread_closes(gate: CallGate, visit: Visit, close: Closer) -> None:
    def handler() -> None:
        close()
        assert not close.given_back
        in_a_thread(visitor.leave)

    visitor = visit()
    with handled(handler, lambda: is_barred(gate)):
        close()
    assert close.given_back == 1


def test_a_signal_handler_that_closes_keeps_its_thread_out_or_is_refused() -> None:
    """At each place where Python runs the handler while its thread goes in and out twice."""
    outcomes: list[str] = []

    def close_at(place: int) -> bool:
        """False if there are fewer places."""
        fresh = CallGate("/var/lib/claims")
        closer, done = Closer(fresh), False

        def handler() -> None:
            nonlocal done
            done = True
            try:
                closer()
                outcomes.append("closed")
            except ManagerClosed as error:
                outcomes.append("refused" if "from within" in str(error) else str(error))

        def visit() -> None:
            with fresh, fresh:
                assert not closer.given_back

        with suppress(ManagerClosed):
            called(visit, handler, place)
        closer()
        assert closer.given_back == 1
        return done

    places = next(place for place in itertools.count() if not close_at(place))
    assert places > 8
    assert set(outcomes) == {"closed", "refused"}


@locks_survive_handlers
def test_a_handler_that_raises_anywhere_leaves_no_thread_inside() -> None:
    gate = CallGate("/var/lib/claims")

    def twice() -> None:
        with gate, gate:
            gate.check()

    def check() -> None:
        nonlocal gate
        in_time(lambda: gate.close(lambda: None))
        gate = CallGate("/var/lib/claims")

    for more in range(4):
        assert everywhere(lambda: twice, check, more) > 8


@locks_survive_handlers
def test_closing_that_is_interrupted_anywhere_can_be_repeated_in_another_thread() -> None:
    for more in range(4):
        for at in itertools.count():
            gate = CallGate("/var/lib/claims")
            given_back: list[int] = []
            give_back = given_back.append
            with gate:
                pass
            handler = interrupted(lambda: gate.close(lambda: give_back(1)), at, more)  # noqa: B023
            in_time(lambda: gate.close(lambda: give_back(1)))  # noqa: B023
            assert given_back
            assert is_barred(gate)
            if not handler.raised_at:
                break
        assert at > 8


def test_no_thread_slips_in_while_another_one_closes(gate: CallGate, close: Closer) -> None:
    """The closing thread had found no call inside just before the newcomer took its lock."""

    class Late:
        """The newcomer's lock. Just before it is taken, another thread closes."""

        def __init__(self) -> None:
            self._lock = gate._thread.lock

        def __getattr__(self, name: str) -> object:
            return getattr(self._lock, name)

        def acquire(self) -> None:
            in_a_thread(close).result(LIMIT)
            self._lock.acquire()

    gate._thread.lock = Late()  # type: ignore[assignment]
    with pytest.raises(ManagerClosed, match="is closed"), gate:
        pytest.fail("it is inside although the gate is closed")
    assert close.given_back == 1


def test_a_thread_that_is_turned_away_does_not_delay_the_closer(gate: CallGate, close: Closer) -> None:
    """The newcomer held its lock for a moment, and a closing thread may have waited for that."""
    closing: list[Future[None]] = []

    class Early:
        """The newcomer's lock. Just after it is taken, another thread closes."""

        def __init__(self) -> None:
            self._lock = gate._thread.lock

        def __getattr__(self, name: str) -> object:
            return getattr(self._lock, name)

        def acquire(self) -> None:
            self._lock.acquire()
            closing.append(in_a_thread(close))
            until(lambda: gate._barred)
            with suppress(TimeoutError):
                closing[0].result(0.1)

    lock = gate._thread.lock
    gate._thread.lock = Early()  # type: ignore[assignment]
    with pytest.raises(ManagerClosed, match="is closed"), gate:
        pytest.fail("it is inside although the gate is closed")
    closing[0].result(LIMIT)
    assert close.given_back == 1
    assert not is_mine(lock)


def test_threads_that_have_ended_are_forgotten(gate: CallGate) -> None:
    def visit() -> None:
        with gate:
            pass

    for _ in range(20):
        thread = threading.Thread(target=visit)
        thread.start()
        thread.join()
    assert len(gate._locks) <= 1
