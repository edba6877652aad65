"""Proofs about the gate that every call passes, for races that no test of a whole manager can bring about."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from checkpointmanager import ManagerClosed
from checkpointmanager._locks import CallGate, is_mine

from ..processes import LIMIT, until
from .test_closing import in_a_thread


@pytest.mark.parametrize("after", [False, True], ids=["before the lock is taken", "after it"])
def test_no_thread_slips_in_while_another_one_closes_nor_delays_it(after: bool) -> None:
    """The closing thread found no call inside just before the newcomer took its lock, or waits for it."""
    gate = CallGate("/var/lib/claims")
    given_back: list[bool] = []
    lock = gate._thread.lock

    class Raced:
        """The newcomer's lock. Another thread closes the gate just before it is taken, or just after."""

        def __getattr__(self, name: str) -> object:
            return getattr(lock, name)

        def acquire(self) -> None:
            if after:
                lock.acquire()
            closing = in_a_thread(lambda: gate.close(lambda: given_back.append(True)))
            until(lambda: gate._barred)
            with suppress(TimeoutError):
                closing.result(0.1 if after else LIMIT)
            if not after:
                lock.acquire()

    gate._thread.lock = Raced()  # type: ignore[assignment]
    with pytest.raises(ManagerClosed, match="is closed"), gate:
        pytest.fail("it is inside although the gate is closed")
    until(lambda: given_back)
    assert given_back == [True]
    assert not is_mine(lock)


def test_threads_that_have_ended_are_forgotten() -> None:
    gate = CallGate("/var/lib/claims")

    def visit() -> None:
        with gate:
            pass

    for _ in range(20):
        thread = threading.Thread(target=visit)
        thread.start()
        thread.join()
    assert len(gate._locks) <= 1
