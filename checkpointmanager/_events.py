"""What an agent wants to hear about: damage, misfits, recovery, stale files, slow syncs. Never data.

Each event goes to the logger `checkpointmanager` and to one callback, which runs outside all locks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType

from ._format.reason import Reason

logger = logging.getLogger("checkpointmanager")
logger.addHandler(logging.NullHandler())  # silent unless the agent configures logging


class EventKind(StrEnum):
    """What happened."""

    DAMAGE = "damage"
    SCHEMA_MISMATCH = "schema-mismatch"
    RECOVERED = "recovered"
    QUARANTINED = "quarantined"
    NOT_QUARANTINED = "not-quarantined"
    STALE_FILES = "stale-files"
    SLOW_SYNC = "slow-sync"
    FORGETFUL_FILE_SYSTEM = "forgetful-file-system"
    UNRELIABLE_FILE_SYSTEM = "unreliable-file-system"


_LEVELS = {
    EventKind.RECOVERED: logging.INFO,
    EventKind.STALE_FILES: logging.INFO,
    EventKind.SCHEMA_MISMATCH: logging.ERROR,  # no disk is to blame, and no retry helps: the program must be mended
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `key` and `reason` are empty where it concerns the directory as a whole."""

    kind: EventKind
    path: str
    detail: str
    key: str = ""
    reason: Reason | None = None
    seconds: float = 0.0


class Events:
    """Delivers events in the thread that caused them, after that thread has left the locks it held.

    Only `meter` is told at once, so that it hears of damage before it hears that the damage was replaced.
    """

    def __init__(
        self, callback: Callable[[Event], object] | None = None, metrics: Callable[[Event], object] | None = None
    ) -> None:
        self._callback = callback
        self._metrics = metrics
        self._thread = _Pending()

    def emit(self, event: Event) -> None:
        if self._metrics:
            self._metrics(event)
        self._thread.events.append(event)
        if not self._thread.depth:
            self._deliver()

    def __enter__(self) -> None:
        """Before a lock is taken: what is emitted inside is delivered after the outermost of these ends."""
        self._thread.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.depth -= 1
        if not self._thread.depth and self._thread.events:
            self._deliver()

    def _deliver(self) -> None:
        events, self._thread.events = self._thread.events, []
        for event in events:
            fields = {"event": event.kind, "key": event.key, "path": event.path, "reason": event.reason}
            logger.log(_LEVELS.get(event.kind, logging.WARNING), "%s: %s", event.path, event.detail, extra=fields)
            if self._callback is None:
                continue
            try:
                self._callback(event)
            except Exception:  # the agent's own bug must not fail a write that succeeded
                logger.exception("the on_event callback failed on a %s event", event.kind)


class _Pending(threading.local):
    def __init__(self) -> None:
        self.depth = 0
        self.events: list[Event] = []
