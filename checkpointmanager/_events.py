"""The events that an agent wants to know about: damage, misfits, recovery, stale files, slow syncs. Never data.

Each event goes to the logger `checkpointmanager` and to one callback, which runs outside all locks.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ._interruption import pass_on_interruption
from ._locks import KeyLocks
from .format import Reason

logger = logging.getLogger("checkpointmanager")
logger.addHandler(logging.NullHandler())  # silent unless the agent configures logging


class EventKind(StrEnum):
    """What happened, and what to do about it."""

    DAMAGE = "damage"
    """A checkpoint cannot be trusted. Recover it, or run `checkpoint-verify diagnose`."""
    UNREADABLE = "unreadable"
    """A file could not be read, which says nothing about its content. Check permissions, descriptors and the disk."""
    SCHEMA_MISMATCH = "schema-mismatch"
    """A whole file does not fit the program. Fix the schema or its migration; the file is right."""
    RECOVERED = "recovered"
    """A damaged checkpoint was repaired exactly; nothing is lost. Watch the disk if it happens again."""
    ROLLED_BACK = "rolled-back"
    """A checkpoint was rolled back to its previous generation on request; the last change is lost."""
    QUARANTINED = "quarantined"
    """The damaged bytes were copied to quarantine before they were replaced; `detail` says where."""
    NOT_QUARANTINED = "not-quarantined"
    """The damaged bytes could not be copied, so there is no copy of what was replaced."""
    STALE_FILES = "stale-files"
    """Unfinished files of an owner that had died were removed at open. Nothing to do."""
    JOURNAL_REPLAYED = "journal-replayed"
    """Changes that an owner had committed before it died were put in place at open. Nothing to do."""
    UNSETTLED = "unsettled"
    """Committed changes could not be put in place or synced. They are safe in the journal; check the disk."""
    SLOW_SYNC = "slow-sync"
    """A sync took over a second, as `seconds` says. Check the disk and its load."""
    FORGETFUL_FILE_SYSTEM = "forgetful-file-system"
    """The directory is on tmpfs or an overlay, and may be gone after a reboot. Use a disk."""
    UNRELIABLE_FILE_SYSTEM = "unreliable-file-system"
    """The directory is on NFS, FUSE or another file system whose syncs or locks may not hold. Use a local disk."""
    CASE_INSENSITIVE_FILE_SYSTEM = "case-insensitive-file-system"
    """Names that differ only in case are one file here. Do not use keys that differ only in case."""


LEVELS = {
    EventKind.DAMAGE: logging.WARNING,
    EventKind.UNREADABLE: logging.WARNING,
    EventKind.SCHEMA_MISMATCH: logging.ERROR,  # no disk is to blame, and no retry helps: the program must be fixed
    EventKind.RECOVERED: logging.INFO,  # repaired exactly: nothing is lost
    EventKind.ROLLED_BACK: logging.WARNING,
    EventKind.QUARANTINED: logging.WARNING,
    EventKind.NOT_QUARANTINED: logging.WARNING,
    EventKind.STALE_FILES: logging.INFO,
    EventKind.JOURNAL_REPLAYED: logging.INFO,  # a dead owner had committed them: nothing is lost
    EventKind.UNSETTLED: logging.WARNING,
    EventKind.SLOW_SYNC: logging.WARNING,
    EventKind.FORGETFUL_FILE_SYSTEM: logging.WARNING,
    EventKind.UNRELIABLE_FILE_SYSTEM: logging.WARNING,
    EventKind.CASE_INSENSITIVE_FILE_SYSTEM: logging.WARNING,
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `key` and `reason` are empty if it concerns the directory as a whole."""

    kind: EventKind  # what happened, to branch on
    path: str  # of the file, or of the directory
    detail: str  # in words; never data
    key: str = ""
    reason: Reason | None = None
    seconds: float = 0.0  # of a slow sync


class Events:
    """Delivers events in the thread that caused them, once that thread holds no keys.

    Only `metrics` receives them at once, so that it counts damage before it counts the replacement of the damage.
    """

    def __init__(
        self,
        callback: Callable[[Event], object] | None = None,
        metrics: Callable[[Event], object] | None = None,
        locks: KeyLocks | None = None,
    ) -> None:
        self._callback = callback
        self._metrics = metrics
        self._locks = locks
        self._thread = _Pending()

    def emit(self, event: Event) -> None:
        if self._metrics:
            self._metrics(event)
        self._thread.events.append(event)
        self.deliver()

    def deliver(self) -> None:
        """Deliver what waits, unless keys are held. Later events bring those of an interrupted call."""
        events = self._thread.events
        while events and not (self._locks and self._locks.are_held()):
            self._deliver(events.popleft())

    def _deliver(self, event: Event) -> None:
        fields = {"event": event.kind, "key": event.key, "path": event.path, "reason": event.reason}
        what = f"{event.kind} ({event.reason})" if event.reason else event.kind
        logger.log(LEVELS[event.kind], "%s: %s: %s", event.path, what, event.detail, extra=fields)
        if self._callback is None:
            return
        try:
            self._callback(event)
        except Exception as error:  # the agent's own bug must not fail a write that succeeded
            pass_on_interruption(error)
            logger.exception("the on_event callback failed on a %s event", event.kind)


class _Pending(threading.local):
    def __init__(self) -> None:
        self.events: deque[Event] = deque()
