"""What the manager returns: a checkpoint, everything that was loaded, what a recovery did. No repr shows data."""

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
    generation: int  # counts the writes of this key, from 1
    version: int  # of the schema that wrote it
    written: datetime  # in UTC
    boot: str  # the boot in which it was written; "" if unknown
    from_this_boot: bool | None  # None if unknown
    unchanged: bool = False  # True if a write found nothing to change, and so wrote nothing


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A whole directory: the checkpoints that could be read, and what is wrong with each of the others.

    `recoveries` has what load(repair=True) repaired; those keys are among the checkpoints.
    """

    checkpoints: Mapping[str, Checkpoint[T]]
    problems: Mapping[str, CheckpointError]  # by key
    recoveries: Mapping[str, Recovery] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verified:
    """How many files match their checksum, and what is wrong with each of the others."""

    intact: int  # how many
    problems: Mapping[str, CheckpointError]  # by key


class Outcome(StrEnum):
    """What recover_checkpoint did, or what the plan of a recovery would do."""

    INTACT = "intact"  # nothing was wrong
    REPAIRED = "repaired"  # exactly the bytes that were once written; nothing is lost
    ROLLED_BACK = "rolled-back"  # the previous generation; the last acknowledged change is lost
    NEEDS_ROLLBACK = "needs-rollback"  # only the previous generation is left, and rollback=True was not passed
    HOPELESS = "hopeless"  # nothing can be done; the file is as it was
    DISCARDED = "discarded"  # removed, because a plan was applied with discard=True; the bytes are in quarantine


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was done about one checkpoint. `quarantined` is where the damaged bytes are kept.

    `rollback_to` is the generation that rollback=True would restore if the outcome is NEEDS_ROLLBACK, otherwise 0.
    """

    key: str  # of the checkpoint
    outcome: Outcome
    detail: str  # what was done, in words
    quarantined: str = ""
    rollback_to: int = 0
