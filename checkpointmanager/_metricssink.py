"""The receiver of figures about every change: durations, bytes, skipped writes. metrics.py implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ._errors import CheckpointWriteFailed
from ._events import Event
from ._store import Put, Remove, Store


class MetricsSink(Protocol):
    """Called on the write path and under its locks: be quick, never raise, never call the manager.

    One sink may serve many managers; `directory` says whose figures they are.
    """

    def opened(self, store: Store) -> None:
        """A manager starts to use this store; its path is the `directory` of the other calls."""
        ...

    def happened(self, directory: str, event: Event) -> None:
        """The event that on_event receives too, but at once: damage is counted before its replacement."""
        ...

    def waited(self, directory: str, seconds: float) -> None:
        """How long a change waited for its locks: those of its keys and, with sharing, the directory's."""
        ...

    def unchanged(self, directory: str) -> None:
        """A write found nothing to change."""
        ...

    def committed(
        self,
        directory: str,
        changes: Sequence[Put | Remove],
        failures: Mapping[str, CheckpointWriteFailed],
        seconds: float,
    ) -> None:
        """What was written and removed, which of it failed, and how long the store took in all."""
        ...

    def synced(self, directory: str, seconds: float) -> None:
        """The slowest sync of a commit, reported just before `committed`; only if the commit synced at all."""
        ...

    def settled(self, directory: str, seconds: float) -> None:
        """How long a settle took, in which no change was committed."""
        ...
