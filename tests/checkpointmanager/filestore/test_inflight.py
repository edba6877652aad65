"""The in_flight that every call passes: closing waits for all who are inside, and for nobody else.

What a fork does to it is in test_fork.py, closing a whole manager in test_ownership.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

import pytest

from checkpointmanager import ManagerClosed
from checkpointmanager._filestore.inflight import InFlight

from ..processes import LIMIT, run_together, until

R = TypeVar("R")


class Visitor:
    """A thread that stays inside until it is told to leave; before that it has gone in and out once more."""

    def __init__(self, in_flight: InFlight, then: Callable[[], object]) -> None:
        self._inside, self._go = threading.Event(), threading.Event()
        self._in_flight, self._then = in_flight, then
        self._visit = in_a_thread(self._stay)
        until(lambda: self._inside.is_set() or self._visit.done())

    def leave(self) -> None:
        self._go.set()
        self._visit.result(LIMIT)

    def _stay(self) -> None:
        with self._in_flight:
            with self._in_flight:
                pass
            self._inside.set()
            assert self._go.wait(LIMIT)
            self._then()


Visit = Callable[..., Visitor]


class Closer:
    """Closes the in_flight when it is called, and counts how often it was given back."""

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self.given_back = 0

    def __call__(self) -> None:
        self._in_flight.close(self._count)

    def _count(self) -> None:
        self.given_back += 1


@pytest.fixture
def in_flight() -> InFlight:
    return InFlight("/var/lib/claims")


@pytest.fixture
def close(in_flight: InFlight) -> Closer:
    return Closer(in_flight)


@pytest.fixture
def visit(in_flight: InFlight) -> Visit:
    return lambda then=lambda: None: Visitor(in_flight, then)


def in_a_thread(work: Callable[[], R]) -> Future[R]:
    """One that does not keep the test alive if it waits for ever."""
    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def is_barred(in_flight: InFlight) -> bool:
    try:
        with in_flight:
            return False
    except ManagerClosed:
        return True


def test_closing_waits_for_all_who_are_inside(in_flight: InFlight, visit: Visit, close: Closer) -> None:
    first, second = visit(), visit()
    closing = in_a_thread(close)
    until(lambda: is_barred(in_flight))
    first.leave()
    assert not closing.done()
    second.leave()
    closing.result(LIMIT)
    assert close.given_back == 1


def test_who_is_inside_may_go_on_while_it_closes(in_flight: InFlight, visit: Visit, close: Closer) -> None:
    def another_call() -> None:
        in_flight.check()
        with in_flight:
            assert not close.given_back

    visitor = visit(another_call)
    closing = in_a_thread(close)
    until(lambda: is_barred(in_flight))
    visitor.leave()
    closing.result(LIMIT)


def test_nobody_is_waited_for_who_has_left(visit: Visit, close: Closer) -> None:
    visit().leave()
    in_a_thread(close).result(LIMIT)
    assert close.given_back == 1


def test_only_the_first_closes(in_flight: InFlight, close: Closer) -> None:
    close()
    close()
    assert close.given_back == 1
    for refused in (in_flight.check, in_flight.__enter__):
        with pytest.raises(ManagerClosed, match="/var/lib/claims: the manager is closed; open another"):
            refused()


def test_whoever_closes_as_well_returns_when_it_is_given_back(in_flight: InFlight, visit: Visit, close: Closer) -> None:
    visitor = visit()
    first = in_a_thread(close)
    until(lambda: is_barred(in_flight))
    second = in_a_thread(close)
    with pytest.raises(TimeoutError):
        second.result(0.1)
    visitor.leave()
    first.result(LIMIT)
    second.result(LIMIT)
    assert close.given_back == 1


def test_who_closes_from_inside_does_not_wait_for_the_one_that_waits_for_it(
    in_flight: InFlight, visit: Visit, close: Closer
) -> None:
    visitor = visit(close)
    closing = in_a_thread(close)
    until(lambda: is_barred(in_flight))
    visitor.leave()
    closing.result(LIMIT)
    assert close.given_back == 1


def test_who_is_inside_cannot_close_and_bars_nobody(in_flight: InFlight, close: Closer) -> None:
    with in_flight, pytest.raises(ManagerClosed, match="cannot be closed from within one of its own calls"):
        close()
    assert not is_barred(in_flight)
    close()
    assert close.given_back == 1


def test_after_an_interrupt_while_it_waits_it_is_open_and_the_next_one_closes(
    in_flight: InFlight, visit: Visit, close: Closer
) -> None:
    second: list[Future[None]] = []

    def interrupted(_: object) -> None:
        second.append(in_a_thread(close))
        with suppress(TimeoutError):
            second[0].result(0.1)  # it must not take this one's word for it
        patch.undo()
        raise KeyboardInterrupt

    visitor = visit()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(in_flight._left, "wait_for", interrupted)
        close()
    assert not second[0].done()
    visitor.leave()
    second[0].result(LIMIT)
    assert close.given_back == 1


def test_an_interrupt_while_it_waits_leaves_it_open(in_flight: InFlight, visit: Visit, close: Closer) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    visitor = visit()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(in_flight._left, "wait_for", interrupted)
        close()
    assert not is_barred(in_flight)
    visitor.leave()
    close()
    assert close.given_back == 1


def test_a_signal_handler_may_close_while_its_thread_closes(in_flight: InFlight, visit: Visit, close: Closer) -> None:
    wait_for = in_flight._left.wait_for

    def interrupted(condition: Callable[[], bool]) -> bool:
        close()
        in_a_thread(visitor.leave)
        return wait_for(condition)

    visitor = visit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_flight._left, "wait_for", interrupted)
        run_together(close)
    assert close.given_back == 1


class Interrupted(dict[int, int]):
    """The count of who is inside, with a signal handler that runs whenever it is looked at."""

    handler: Callable[[], object] | None = None

    def get(self, thread: int, default: int = 0) -> int:  # type: ignore[override]
        found = super().get(thread, default)
        self._signal()
        return found

    def pop(self, thread: int, default: int | None = 0) -> int:  # type: ignore[override]
        found = super().pop(thread, 0)
        self._signal()
        return found or default or 0

    def _signal(self) -> None:
        handler, self.handler = self.handler, None
        if handler:
            handler()


def test_nobody_slips_in_while_another_thread_closes(in_flight: InFlight, close: Closer) -> None:
    in_flight._inside = Interrupted()
    in_flight._inside.handler = lambda: in_a_thread(close).result(LIMIT)
    with pytest.raises(ManagerClosed, match="is closed"), in_flight:
        pytest.fail("inside of what is closed")
    assert not in_flight._inside
    assert close.given_back == 1


def test_who_is_turned_away_holds_up_nobody(in_flight: InFlight, close: Closer) -> None:
    """It was counted for a moment, and whoever closes may have seen that."""
    closing: list[Future[None]] = []

    class Counted(dict[int, int]):
        def __setitem__(self, thread: int, calls: int) -> None:
            super().__setitem__(thread, calls)
            closing.append(in_a_thread(close))
            until(lambda: in_flight._barred)
            with suppress(TimeoutError):
                closing[0].result(0.1)

    in_flight._inside = Counted()
    with pytest.raises(ManagerClosed, match="is closed"), in_flight:
        pytest.fail("inside of what is closed")
    closing[0].result(LIMIT)
    assert close.given_back == 1


def test_a_signal_handler_that_closes_while_its_thread_enters_keeps_it_out(in_flight: InFlight, close: Closer) -> None:
    in_flight._inside = Interrupted()
    in_flight._inside.handler = close
    with pytest.raises(ManagerClosed, match="is closed"), in_flight:
        pytest.fail("inside of what is closed")
    assert not in_flight._inside


def test_a_signal_handler_cannot_close_while_its_thread_leaves_an_inner_call(
    in_flight: InFlight, close: Closer
) -> None:
    refused: list[ManagerClosed] = []

    def handler() -> None:
        with pytest.raises(ManagerClosed, match="from within") as caught:
            close()
        refused.append(caught.value)

    in_flight._inside = Interrupted()
    with in_flight:
        with in_flight:
            in_flight._inside.handler = handler
        assert refused
    close()
    assert close.given_back == 1
