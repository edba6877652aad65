"""What will be done, or was done, about one file."""

from __future__ import annotations

import os
from dataclasses import dataclass

from checkpointmanager import RecoveryPlan
from checkpointmanager.format import JOURNAL

from ..findings.examine import examine_path
from ..findings.finding import Finding, State
from ..findings.journal import Waiting
from ..targets import Target


@dataclass(slots=True)
class Step:
    """One file, as it was found, and what becomes of it."""

    target: Target
    found: Finding
    plan: RecoveryPlan | None = None
    action: str = ""  # repaired, rolled-back, discarded, finished, dropped, restored, removed, good, stays, left
    detail: str = ""
    quarantined: str = ""
    failed: bool = False
    errno: int = 0  # of the failure

    @property
    def is_open(self) -> bool:
        """True if nothing was done about the file, or will be."""
        return self.action == "left"

    @property
    def is_damaged(self) -> bool:
        """True if the file is still damaged, or will be."""
        return self.is_open and self.found.state is State.DAMAGED

    @property
    def is_change(self) -> bool:
        """True if the file was changed, or will be."""
        return self.action not in ("left", "good", "stays")

    def leave(self, why: str, errno: int = 0) -> None:
        """Record that the file stays as it is, and why."""
        self.action, self.failed, self.detail, self.errno = "left", True, why, errno


def step_for(target: Target, action: str, detail: str) -> Step:
    """A step about a file as it is now."""
    return Step(target, examine_path(target.path), action=action, detail=detail)


def finish(journal: Waiting) -> Step:
    """The step that an owner makes when it opens and closes the directory."""
    path = os.path.join(journal.directory, JOURNAL)
    return Step(Target(path, ""), Finding(path, State.GOOD), action="finished", detail=str(journal))
