"""The status that the agent reports to probes, people and monitoring."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from checkpointmanager import LockOwner
from draState import ClaimInfoCache, ClaimPreparer

from .devicehealth import DeviceHealth
from .podconfigs import PodConfigs


class Phase(StrEnum):
    """Where the agent is in its life."""

    STARTING = "starting"
    STANDBY = "standby"  # another process has the state; waits to take over
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(slots=True)
class Status:
    """Changed by the agent on its event loop, read from any thread."""

    phase: Phase = Phase.STARTING
    owner: LockOwner | None = None  # while standing by: the process that has the state
    cache: ClaimInfoCache | None = None
    preparer: ClaimPreparer | None = None
    pods: PodConfigs | None = None
    health: DeviceHealth | None = None
    registration: str = "kubelet has not called yet"
    registered: bool = False
    published: str = "not yet"
    unserved: str = ""  # why this API server is not one to work with; an outage is no such reason
    devices_file: str = "good"  # or what is wrong with it now
    failure: str = ""  # why it cannot go on and should be restarted

    @property
    def ready(self) -> bool:
        """A standby is ready: a rolling update with surge ends the old process only then."""
        return self.phase in (Phase.STANDBY, Phase.SERVING) and not self.failure and not self.unserved

    def details(self) -> dict[str, Any]:
        """For /readyz. Claims that cannot be trusted are named, with the reason."""
        report = self.cache.report() if self.cache is not None else None
        told: dict[str, Any] = {"ready": self.ready, "phase": self.phase}
        if self.failure:
            told["failure"] = self.failure
        if self.unserved:
            told["reason"] = self.unserved
        if self.owner and self.phase is Phase.STANDBY:
            told["holder"] = str(self.owner)
        if report:
            told["state"] = "degraded" if report.degraded else "good"
            told["claims"] = report.claims
            told["unknown_claims"] = dict(report.unknown)
            told["claims_of_an_earlier_boot"] = len(report.earlier_boot)
            orphans = self.preparer.orphans.current(self.preparer.cache) if self.preparer else {}
            told["orphaned_claims"] = {uid: orphan.why for uid, orphan in orphans.items()}
            told["registration"] = self.registration
            told["resource_slices"] = self.published
            told["devices_file"] = self.devices_file
            if self.pods:
                told["pod_configs"] = self.pods.details()
            if self.health:
                told["devices"] = self.health.details()
        return told
