"""What a change holds while it is made: its events back, the store open for writing, and its keys."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence

from ._events import Events
from ._keylocks import KeyLocks, Turn
from ._metricssink import MetricsSink
from ._store import Store
from ._unbroken import Unbroken


class ChangeGuard(Unbroken):
    """Nobody else changes these keys meanwhile; events wait until the locks are given back.

    However the change ends, also by a signal handler that raises, nothing is held afterwards. The store's `writing`
    is left without being told of an error.
    """

    def __init__(
        self, keys: Sequence[str], events: Events, store: Store, locks: KeyLocks, metrics: MetricsSink | None
    ) -> None:
        super().__init__(_guard(keys, events, store, locks, metrics))


def _guard(
    keys: Sequence[str], events: Events, store: Store, locks: KeyLocks, metrics: MetricsSink | None
) -> Generator[None, None, None]:
    started = time.perf_counter() if metrics else 0.0
    turn = Turn(locks, keys)
    try:
        # The store before its keys: what is closed, or was opened before a fork, must refuse before anybody waits.
        with turn.lock, store.writing():
            try:
                turn.wait()
                events.hold_back(turn.lock)
                if metrics:
                    metrics.waited(store.path, time.perf_counter() - started)
                store.confirm(keys)
                yield
            finally:
                turn.leave()
    finally:
        events.deliver()
