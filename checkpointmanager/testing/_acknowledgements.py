"""Lets a scenario say what its clients rely on from now on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Listener(Protocol):
    def acknowledge(self, value: Any) -> None: ...

    def sync_failed(self, descriptor: int) -> None: ...


_listeners: list[Listener] = []


def acknowledge(value: Any) -> None:
    """Declare inside a scenario that `value` has been promised: a crash from now on must not lose it.

    It appears in `acknowledged` of every later crash and fault. Does nothing outside a scenario.
    """
    for listener in _listeners:
        listener.acknowledge(value)


def report_failed_sync(descriptor: int) -> None:
    """For a fault injector: the recorder does not see a call that was never made."""
    for listener in _listeners:
        listener.sync_failed(descriptor)


@contextmanager
def to(listener: Listener) -> Iterator[None]:
    """Inside the block, `listener` receives these reports."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class Collected:
    """Collects only what was acknowledged."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def acknowledge(self, value: Any) -> None:
        self.values.append(value)

    def sync_failed(self, descriptor: int) -> None:
        """Ignored: nothing is recorded here."""
