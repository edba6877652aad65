"""The gate that every call passes: closing waits for all who are inside, and for nobody else.

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
from checkpointmanager.filestore.gate import Gate

from .processes import LIMIT, run_together, until

R = TypeVar("R")


class Visitor:
    """A thread that stays inside until it is told to leave; before that it has gone in and out once more."""

    def __init__(self, gate: Gate, then: Callable[[], object]) -> None:
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


@pytest.fixture
def gate() -> Gate:
    return Gate("/var/lib/claims")


@pytest.fixture
def visit(gate: Gate) -> Visit:
    return lambda then=lambda: None: Visitor(gate, then)


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


def is_barred(gate: Gate) -> bool:
    try:
        with gate:
            return False
    except ManagerClosed:
        return True


def test_closing_waits_for_all_who_are_inside(gate: Gate, visit: Visit) -> None:
    first, second = visit(), visit()
    closing = in_a_thread(gate.close)
    until(lambda: is_barred(gate))
    first.leave()
    assert not closing.done()
    second.leave()
    assert closing.result(LIMIT)


def test_who_is_inside_may_go_on_while_it_closes(gate: Gate, visit: Visit) -> None:
    def another_call() -> None:
        gate.check()
        with gate:
            assert not closing.done()

    visitor = visit(another_call)
    closing = in_a_thread(gate.close)
    until(lambda: is_barred(gate))
    visitor.leave()
    assert closing.result(LIMIT)


def test_nobody_is_waited_for_who_has_left(gate: Gate, visit: Visit) -> None:
    visit().leave()
    assert in_a_thread(gate.close).result(LIMIT)


def test_only_the_first_closes(gate: Gate) -> None:
    assert [gate.close(), gate.close()] == [True, False]
    for refused in (gate.check, gate.__enter__):
        with pytest.raises(ManagerClosed, match="/var/lib/claims: the manager is closed; open another"):
            refused()


def test_who_is_inside_cannot_close_and_bars_nobody(gate: Gate) -> None:
    with gate, pytest.raises(ManagerClosed, match="cannot be closed from within one of its own calls"):
        gate.close()
    assert not is_barred(gate)
    assert gate.close()


def test_an_interrupt_while_it_waits_leaves_it_open(gate: Gate, visit: Visit) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    visitor = visit()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gate._changed, "wait_for", interrupted)
        gate.close()
    assert not is_barred(gate)
    visitor.leave()
    assert gate.close()


def test_a_signal_handler_may_enter_while_its_thread_passes(gate: Gate) -> None:
    def handled_in_the_middle() -> None:
        with gate._lock, gate:
            pass

    run_together(handled_in_the_middle)
    assert gate.close()


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


def test_nobody_slips_in_while_another_thread_closes(gate: Gate) -> None:
    closing: list[Future[bool]] = []

    def close() -> None:
        closing.append(in_a_thread(gate.close))
        with suppress(TimeoutError):
            closing[0].result(0.1)

    gate._inside = Interrupted()
    gate._inside.handler = close
    with gate:
        assert not closing[0].done()
    assert closing[0].result(LIMIT)


def test_a_signal_handler_that_closes_while_its_thread_enters_keeps_it_out(gate: Gate) -> None:
    gate._inside = Interrupted()
    gate._inside.handler = gate.close
    with pytest.raises(ManagerClosed, match="is closed"), gate:
        pytest.fail("inside of what is closed")
    assert not gate._inside


def test_a_signal_handler_cannot_close_while_its_thread_leaves_an_inner_call(gate: Gate) -> None:
    refused: list[ManagerClosed] = []

    def close() -> None:
        with pytest.raises(ManagerClosed, match="from within") as caught:
            gate.close()
        refused.append(caught.value)

    gate._inside = Interrupted()
    with gate:
        with gate:
            gate._inside.handler = close
        assert refused
    assert gate.close()
