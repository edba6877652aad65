"""Who is told the figures of every change: how long, how many bytes, what was skipped. metrics.py is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ._errors import CheckpointWriteFailed
from ._events import Event
from ._store import Put, Store


class MetricsSink(Protocol):
    """Called on the write path and under its locks: be quick, never raise, never call the manager.

    One metrics may serve many managers; `directory` says whose figures they are.
    """

    def opened(self, store: Store) -> None:
        """A manager starts to use this store, whose path is the directory from now on."""
        ...

    def happened(self, directory: str, event: Event) -> None:
        """What the on_event callback is told as well, but at once: damage comes before what replaces it."""
        ...

    def waited(self, directory: str, seconds: float) -> None:
        """So long a change took to get its locks: those of its keys, and under sharing the directory's."""
        ...

    def unchanged(self, directory: str) -> None:
        """A write found nothing to change."""
        ...

    def committed(
        self,
        directory: str,
        puts: Sequence[Put],
        removals: Sequence[str],
        failures: Mapping[str, CheckpointWriteFailed],
        seconds: float,
    ) -> None:
        """What was written and removed, what of it failed, and how long the store took for all of it."""
        ...

    def synced(self, directory: str, seconds: float) -> None:
        """The slowest sync of a commit, just before it is told; only from files that are synced at all."""
        ...
