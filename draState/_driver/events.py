"""Events for operators: the errors and decisions of a ClaimPreparer.

Each event goes to the logger `draState` and to one callback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .._draplugin import ClaimRef

logger = logging.getLogger("draState")
logger.addHandler(logging.NullHandler())  # silent unless the agent configures logging


class ClaimEventKind(StrEnum):
    """What happened."""

    ANSWERED_FROM_MEMORY = "answered-from-memory"  # the API server could not be reached
    OUTDATED = "outdated"  # answered from memory, and the allocation was another one
    ALLOCATION_CHANGED = "allocation-changed"  # under the same UID; the old devices are torn down
    UNFINISHED = "unfinished"  # found at the start: its set-up or tear-down had not ended
    ORPHANED = "orphaned"  # only this driver still knows the claim
    RELEASED = "released"  # an orphan, or by force; its devices are free
    UNKNOWN = "unknown"  # found at the start: its record is damaged, too new or not a claim
    RECORD_LOST = "record-lost"  # found at the start: set up on this node, and no record of it
    UNKNOWN_DEVICES = "unknown-devices"  # a damaged claim; nothing shows which devices it holds
    HEALED = "healed"  # a damaged or lost record was written anew
    FAILED = "failed"  # a prepare, unprepare or restore
    STATE_LOST = "state-lost"  # another process has the directory: restart the agent


LEVELS = {
    ClaimEventKind.ANSWERED_FROM_MEMORY: logging.WARNING,
    ClaimEventKind.OUTDATED: logging.ERROR,
    ClaimEventKind.ALLOCATION_CHANGED: logging.WARNING,
    ClaimEventKind.UNFINISHED: logging.INFO,
    ClaimEventKind.ORPHANED: logging.WARNING,
    ClaimEventKind.RELEASED: logging.WARNING,
    ClaimEventKind.UNKNOWN: logging.ERROR,
    ClaimEventKind.RECORD_LOST: logging.ERROR,
    ClaimEventKind.UNKNOWN_DEVICES: logging.ERROR,
    ClaimEventKind.HEALED: logging.WARNING,
    ClaimEventKind.FAILED: logging.WARNING,
    ClaimEventKind.STATE_LOST: logging.ERROR,
}


@dataclass(frozen=True, slots=True)
class ClaimEvent:
    """Something that happened to one claim."""

    kind: ClaimEventKind  # what happened, to branch on
    uid: str  # of the claim
    detail: str  # for people
    ref: ClaimRef | None = None  # the claim, if its name is known
    pods: Mapping[str, str] = field(default_factory=dict)  # its pods: UID to name, "" if that is not known


def emit(event: ClaimEvent, callback: Callable[[ClaimEvent], object] | None) -> None:
    """Log the event and call the callback. An error in the callback is logged and goes no further."""
    fields = {"event": event.kind, "claim_uid": event.uid}
    logger.log(LEVELS[event.kind], "claim %s: %s: %s", event.uid, event.kind, event.detail, extra=fields)
    if callback is None:
        return
    try:
        callback(event)
    except Exception:
        logger.exception("the on_event callback failed on a %s event", event.kind)
