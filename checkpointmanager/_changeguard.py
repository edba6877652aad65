"""Holds the keys of a change and opens the store for writing while the change is made, and delays its events."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence

from ._events import Events
from ._keylocks import KeyLocks, Turn
from ._metricssink import MetricsSink
from ._store import Store


def change_guard(
    keys: Sequence[str], events: Events, store: Store, locks: KeyLocks, metrics: MetricsSink | None
) -> Generator[None, None, None]:
    """For Unbroken: no other thread changes these keys meanwhile; events wait until the locks are released.

    However the change ends, even if a signal handler raises, nothing is held afterwards. The store's `writing` never
    sees the error.
    """
    started = time.perf_counter() if metrics else 0.0
    turn = Turn(locks, keys)
    try:
        # The store before its keys: a store that is closed, or was opened before a fork, must refuse without waiting.
        with turn.lock, store.writing():
            try:
                turn.wait()
                events.hold_back(turn.lock)
                if metrics:
                    metrics.waited(store.path, time.perf_counter() - started)
                store.check_owner(keys)
                yield
            finally:
                turn.leave()
    finally:
        events.deliver()
