"""close() lets no more calls in, waits for all that are inside and for nothing else, and frees the directory once.

What a fork does to it is in test_fork.py, a handler that raises at any place in test_signals.py.
"""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from checkpointmanager import CheckpointManager, DirectoryLocked, ManagerClosed

from ..processes import LIMIT, until
from ..signals import Handler, run

R = TypeVar("R")
Manager = CheckpointManager[Any]


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


class Visitor:
    """A thread that stays inside a call of the manager until `leave` is called, and does something else before."""

    def __init__(self, manager: Manager, key: str, then: Callable[[], object] = int) -> None:
        self._inside, self._go = threading.Event(), threading.Event()
        self._then = then
        self._visit = in_a_thread(lambda: manager.update_checkpoint(key, self._stay, 0))
        until(lambda: self._inside.is_set() or self._visit.done())

    def leave(self) -> None:
        self._go.set()
        assert self._visit.result(LIMIT).data == 1

    def _stay(self, number: int) -> int:
        self._inside.set()
        assert self._go.wait(LIMIT)
        self._then()
        return number + 1


@pytest.fixture
def manager(directory: Path) -> Manager:
    manager: Manager = CheckpointManager(directory)
    manager.create_checkpoint("a", 0)
    return manager


def is_barred(manager: Manager) -> bool:
    try:
        return manager.list_checkpoints() is None
    except ManagerClosed:
        return True


def is_free(directory: Path) -> bool:
    try:
        CheckpointManager(directory).close()
    except DirectoryLocked:
        return False
    return True


def test_closing_waits_for_all_threads_inside_and_lets_them_finish(manager: Manager, directory: Path) -> None:
    def another_call() -> None:
        assert manager.get_checkpoint("a").data == 0
        assert not is_free(directory)

    first, second = Visitor(manager, "a", another_call), Visitor(manager, "b")
    closing = in_a_thread(manager.close)
    until(lambda: is_barred(manager))
    first.leave()
    assert not closing.done()
    assert not is_free(directory)
    second.leave()
    closing.result(LIMIT)
    with CheckpointManager[int](directory) as again:
        assert [again.get_checkpoint(key).data for key in "ab"] == [1, 1]


def test_after_it_nothing_works_and_closing_again_leaves_the_next_owner_alone(
    manager: Manager, directory: Path
) -> None:
    Visitor(manager, "a").leave()
    in_a_thread(manager.close).result(LIMIT)
    with CheckpointManager[int](directory):
        manager.close()
        assert not is_free(directory)
    calls: list[Callable[[], object]] = [
        lambda: manager.create_checkpoint("a", 2),
        lambda: manager.get_checkpoint("a"),
        lambda: manager.remove_checkpoint("a"),
        manager.list_checkpoints,
    ]
    for call in calls:
        with pytest.raises(ManagerClosed, match=f"{directory}: the manager is closed; open another"):
            call()


def test_a_second_closer_returns_when_the_directory_is_free(manager: Manager, directory: Path) -> None:
    visitor = Visitor(manager, "a")
    first = in_a_thread(manager.close)
    until(lambda: is_barred(manager))

    def close_and_look() -> bool:
        manager.close()
        return is_free(directory)

    second = in_a_thread(close_and_look)
    with pytest.raises(TimeoutError):
        second.result(0.1)
    visitor.leave()
    first.result(LIMIT)
    assert second.result(LIMIT)


def test_a_thread_inside_cannot_close_and_bars_no_other(manager: Manager) -> None:
    def close() -> None:
        with pytest.raises(ManagerClosed, match="cannot be closed from within one of its own calls"):
            manager.close()

    Visitor(manager, "a", close).leave()
    assert manager.create_checkpoint("b", 1).generation == 1
    manager.close()


def test_closing_from_inside_does_not_wait_for_the_closer_that_waits_for_this_thread(
    manager: Manager, directory: Path
) -> None:
    visitor = Visitor(manager, "a", manager.close)
    closing = in_a_thread(manager.close)
    until(lambda: is_barred(manager))
    visitor.leave()
    closing.result(LIMIT)
    assert is_free(directory)


@contextmanager
def handled(handler: Callable[[], object], when: Callable[[], object]) -> Iterator[None]:
    """The main thread, which waits in the block, gets a signal with this handler."""

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


@pytest.mark.parametrize("another_closes", [False, True])
def test_after_an_interrupt_while_it_waits_it_is_open_and_the_next_one_closes(
    manager: Manager, directory: Path, another_closes: bool
) -> None:
    second: list[Future[None]] = []

    def interrupt() -> None:
        if another_closes:
            second.append(in_a_thread(manager.close))
            with suppress(TimeoutError):
                second[0].result(0.1)  # it must not rely on the interrupted close
        raise KeyboardInterrupt

    visitor = Visitor(manager, "a")
    with handled(interrupt, lambda: is_barred(manager)), pytest.raises(KeyboardInterrupt):
        manager.close()
    if another_closes:
        assert not second[0].done()
        visitor.leave()
        second[0].result(LIMIT)
    else:
        assert not is_barred(manager)
        visitor.leave()
        manager.close()
    assert is_free(directory)


def test_a_signal_handler_may_close_while_its_thread_closes(manager: Manager, directory: Path) -> None:
    def handler() -> None:
        manager.close()
        assert not is_free(directory)
        in_a_thread(visitor.leave)

    visitor = Visitor(manager, "a")
    with handled(handler, lambda: is_barred(manager)):
        manager.close()
    assert is_free(directory)


@pytest.mark.usefixtures("uncounted")
def test_a_signal_handler_that_closes_keeps_its_thread_out_or_is_refused(directory: Path) -> None:
    """At each place where Python runs the handler while its thread looks for a key."""
    outcomes: list[str] = []

    def close_at(place: int) -> bool:
        """False if there are fewer places."""
        manager: Manager = CheckpointManager(directory)
        done = False

        def handler() -> None:
            nonlocal done
            done = True
            try:
                manager.close()
                outcomes.append("closed")
            except ManagerClosed as error:
                outcomes.append("refused" if "from within" in str(error) else str(error))

        with suppress(ManagerClosed):
            run(lambda: "a" in manager, Handler(place, 0, handler))
        manager.close()
        assert is_free(directory)
        return done

    places = next(place for place in itertools.count() if not close_at(place))
    assert places > 8
    assert set(outcomes) == {"closed", "refused"}
