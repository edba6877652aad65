"""What a change holds while it is made: its events back, the store open for writing, and its keys.

A class with two methods and not a generator, because every write passes here.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from ._events import Events
from ._keylocks import KeyLocks
from ._metricssink import MetricsSink
from ._store import Store


class ChangeGuard:
    """Nobody else changes these keys meanwhile; events wait until the locks are given back."""

    __slots__ = ("_events", "_keys", "_locks", "_metrics", "_store", "_writing")

    def __init__(
        self, keys: Sequence[str], events: Events, store: Store, locks: KeyLocks, metrics: MetricsSink | None
    ) -> None:
        self._keys = keys
        self._events = events
        self._store = store
        self._locks = locks
        self._metrics = metrics
        self._writing = store.writing()

    def __enter__(self) -> None:
        started = time.perf_counter() if self._metrics else 0.0
        self._events.__enter__()
        try:
            # The store first: what is closed, or was opened before a fork, must refuse before anybody waits.
            self._writing.__enter__()
            try:
                self._keys = self._locks.take(self._keys)
                try:
                    if self._metrics:
                        self._metrics.waited(self._store.path, time.perf_counter() - started)
                    self._store.confirm()
                except BaseException:
                    self._locks.give_back(self._keys)
                    raise
            except BaseException:
                self._writing.__exit__(*sys.exc_info())
                raise
        except BaseException:
            self._events.__exit__(*sys.exc_info())
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._locks.give_back(self._keys)
        finally:
            try:
                self._writing.__exit__(kind, error, trace)
            finally:
                self._events.__exit__(kind, error, trace)
