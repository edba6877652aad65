"""How a scenario tells what somebody relies on from now on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Listener(Protocol):
    def acknowledge(self, value: Any) -> None: ...

    def sync_failed(self, descriptor: int) -> None: ...


_listeners: list[Listener] = []


def acknowledge(value: Any) -> None:
    """Say inside a scenario that `value` has been promised: a crash from now on must not lose it.

    Comes back as `acknowledged` of every crash and fault after this moment. Does nothing outside of a scenario.
    """
    for listener in _listeners:
        listener.acknowledge(value)


def tell_of_failed_sync(descriptor: int) -> None:
    """A fault injector tells the recorder, which does not see a call that was never made."""
    for listener in _listeners:
        listener.sync_failed(descriptor)


@contextmanager
def to(listener: Listener) -> Iterator[None]:
    """Inside, this one hears what is told."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class Collected:
    """Only keeps what was acknowledged."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def acknowledge(self, value: Any) -> None:
        self.values.append(value)

    def sync_failed(self, descriptor: int) -> None:
        """Of no interest here."""
