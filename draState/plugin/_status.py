"""The status that the agent reports to probes, people and monitoring."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from checkpointmanager import LockOwner

from .. import ClaimPreparer, PodConfigStore
from ._draplugin import RegistrationService
from ._health import HealthWatch
from ._heldclaims import why_unknown
from ._publisher import Publisher

ROOM = 16 << 10  # bytes: a claim, its next generation, and what the file system needs for them
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS)  # no files without a name here


class Phase(StrEnum):
    """Where the agent is in its life."""

    STARTING = "starting"
    STANDBY = "standby"  # another process owns the state; waits to take over
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(slots=True)
class Status:
    """Changed by the agent on its event loop, read from any thread."""

    registration: RegistrationService
    publisher: Publisher
    phase: Phase = Phase.STARTING
    owner: LockOwner | None = None  # while standing by: the process that owns the state
    preparer: ClaimPreparer | None = None
    pods: PodConfigStore | None = None
    health: HealthWatch | None = None
    inventory: str = "good"  # or why the driver's devices cannot be used now
    disk: str = ""  # why claims cannot be written
    failure: str = ""  # why the agent cannot continue and should be restarted

    @property
    def ready(self) -> bool:
        """A standby is ready: a rolling update with surge ends the old process only then."""
        return self.phase in (Phase.STANDBY, Phase.SERVING) and not self.failure and not self.reasons

    @property
    def reasons(self) -> list[str]:
        """Why the agent is not ready, although it serves and a restart would not help."""
        found = [self.publisher.unserved, self.disk]
        if self.preparer:
            if refusal := self.preparer.look_ups.refusal:
                found.append(f"claims cannot be looked up: {refusal}")
            if lost := sorted(self.preparer.review.lost):
                found.append(f"the state was lost; claims that are set up and have no record: {', '.join(lost)}")
            if outdated := sorted(self.preparer.review.outdated):
                found.append(f"pods may have devices that are not theirs: see outdated_claims ({', '.join(outdated)})")
        return [reason for reason in found if reason]

    def details(self) -> dict[str, Any]:
        """For /readyz. Names the claims that cannot be trusted, with the reason."""
        details: dict[str, Any] = {"ready": self.ready, "phase": self.phase}
        if self.failure:
            details["failure"] = self.failure
        if self.reasons:
            details["reason"] = "; ".join(self.reasons)
        if self.owner and self.phase is Phase.STANDBY:
            details["holder"] = str(self.owner)
        if self.preparer:
            report, review = self.preparer.cache.report(), self.preparer.review
            details["state"] = "degraded" if report.degraded else "good"
            details["claims"] = report.claims
            details["unknown_claims"] = {
                uid: why_unknown(uid, why, self.preparer) for uid, why in report.unknown.items()
            }
            details["claims_of_an_earlier_boot"] = len(report.earlier_boot)
            details["orphaned_claims"] = {uid: orphan.why for uid, orphan in review.orphans.items()}
            details["outdated_claims"] = dict(review.outdated)
            details["registration"] = self.registration.status
            details["resource_slices"] = self.publisher.published
            details["inventory"] = self.inventory
        if self.pods is not None:
            details["pod_configs"] = {"pods": len(self.pods), "problems": dict(self.pods.problems)}
        if self.health:
            details["devices"] = self.health.details()
        return details


def disk_problem(directory: str) -> str:
    """Why claims cannot be written to a directory, or "": a full or read-only file system, before a pod waits for it.

    Reserves space for a file without a name, and writes nothing.
    """
    try:
        descriptor = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, ROOM)
        finally:
            os.close(descriptor)
    except OSError as error:
        return "" if error.errno in _UNSUPPORTED else f"{directory}: claims cannot be written: {error.strerror}"
    return ""
