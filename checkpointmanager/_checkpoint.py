"""What the manager gives back: a checkpoint, everything that was loaded, what a recovery did. Never prints data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from ._errors import CheckpointError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Checkpoint(Generic[T]):
    """One checkpoint as it is on disk."""

    data: T = field(repr=False)  # what was written, typed by the schema
    key: str  # the name of the file without .json
    generation: int  # how often this key has been written, from 1
    version: int  # of the schema that wrote it
    written: datetime  # in UTC
    boot: str  # the boot in which it was written; "" if that is not known
    from_this_boot: bool | None  # None where the kernel does not say
    unchanged: bool = False  # True from a write that found nothing to change, and so wrote nothing


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """All of a directory: what could be read, and what is wrong with each of the others.

    `recoveries` has what load(repair=True) repaired on the way; those keys are among the checkpoints.
    """

    checkpoints: Mapping[str, Checkpoint[T]]
    problems: Mapping[str, CheckpointError]  # by key
    recoveries: Mapping[str, Recovery] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verified:
    """How many files hold what their checksum says, and what is wrong with each of the others."""

    intact: int  # how many
    problems: Mapping[str, CheckpointError]  # by key


class Outcome(StrEnum):
    """What recover_checkpoint did, or what the plan of a recovery would do."""

    INTACT = "intact"  # nothing was wrong
    REPAIRED = "repaired"  # exactly the bytes that were once written; nothing is lost
    ROLLED_BACK = "rolled-back"  # the previous generation; the last acknowledged change is lost
    NEEDS_ROLLBACK = "needs-rollback"  # only the previous generation is left, and rollback=True was not given
    HOPELESS = "hopeless"  # nothing at all can be done; the file is as it was
    DISCARDED = "discarded"  # removed, because a plan was applied with discard=True; the bytes are in quarantine


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was done about one checkpoint. `quarantined` is where the damaged bytes are kept.

    `rollback_to` is the generation that rollback=True would go back to if the outcome is NEEDS_ROLLBACK; else 0.
    """

    key: str  # of the checkpoint
    outcome: Outcome
    detail: str  # what was done, in words
    quarantined: str = ""
    rollback_to: int = 0
