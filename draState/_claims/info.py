"""A claim in memory: its persisted state, and flags that must not outlive the process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from checkpointmanager import CorruptCheckpoint

from .._draplugin import ClaimRef
from .state import ClaimInfoState, ClaimPhase, Device, DriverState

_NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})  # shared by all claims, to save memory
_NO_EVIDENCE: Mapping[str, DriverState] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClaimInfo:
    """Immutable: a change makes a new record, so a reader never sees half of a change.

    `prepared` and `unpreparing` are valid only in the process that set them: the resources may not have survived
    whatever ended it. `unknown` is the reason why the state cannot be trusted; its devices stay held. The state
    is then the previous generation's, or empty, and `evidence` is what the damaged bytes still name. With `in_doubt`
    the state is intact, but may not have reached the disk; `before_doubt` is then the last acknowledged state, which
    containers still get.
    """

    state: ClaimInfoState
    prepared: bool = False
    unpreparing: bool = False
    annotations: Mapping[str, str] = field(default_factory=lambda: _NO_ANNOTATIONS)  # the agent's own notes
    from_this_boot: bool | None = True  # written since the last reboot; None if unknown
    unknown: str = ""
    in_doubt: bool = False
    before_doubt: ClaimInfoState | None = None
    evidence: Mapping[str, DriverState] = field(default_factory=lambda: _NO_EVIDENCE, repr=False)  # by driver

    @property
    def uid(self) -> str:
        """The claim's identity, and the name of its file."""
        return self.state.claim_uid

    @property
    def name(self) -> tuple[str, str]:
        """(namespace, name), for people; the identity is the UID."""
        return self.state.namespace, self.state.claim_name

    @property
    def ref(self) -> ClaimRef:
        """What a driver learns about it."""
        namespace, name = self.name
        return ClaimRef(self.uid, name, namespace)

    @property
    def guessed(self) -> bool:
        """True if the users of the claim are unknown, because its file is damaged."""
        return bool(self.unknown) and not self.in_doubt

    def held(self, driver: str) -> DriverState:
        """The devices that nobody else may get, and data to choose around; not for changing hardware."""
        part, shown = self.state.driver_states.get(driver, DriverState()), self.evidence.get(driver, DriverState())
        named = {device.identity for device in part.devices}
        more = tuple(device for device in shown.devices if device.identity not in named)
        data = shown.driver_data if part.driver_data is None else part.driver_data
        return replace(part, devices=part.devices + more, driver_data=data)

    def devices(self) -> set[tuple[str, str, str]]:
        """(driver, pool, device) of every device that it holds."""
        shown = {(name, each.pool_name, each.device_name) for name in self.evidence for each in self.held(name).devices}
        return self.state.devices() | shown

    @property
    def served(self) -> ClaimInfoState:
        """What containers get: the last acknowledged state, without a change that is in doubt."""
        return self.before_doubt or self.state

    def doubted(self, old: ClaimInfo | None, why: str) -> ClaimInfo:
        """The record that replaces `old` when the write of this one is in doubt: it holds the pods of both."""
        if old is None or old.guessed:
            return replace(self, prepared=False, unknown=why, in_doubt=True)
        state = replace(self.state, pod_uids=self.state.pod_uids | old.state.pod_uids)
        return replace(self, state=state, prepared=old.prepared, unknown=why, in_doubt=True, before_doubt=old.served)

    def rewritten(self, state: ClaimInfoState) -> ClaimInfo:
        """This record with an intact state to write: no longer unknown."""
        return replace(self, state=state, unknown="", in_doubt=False, before_doubt=None, evidence=_NO_EVIDENCE)


def evidence_in(problem: Exception | None, uid: str) -> Mapping[str, DriverState]:
    """What each driver did, as far as the damaged bytes show it; empty if they do not, or are about another claim.

    No checksum vouches for it, and a changed digit would make it another device. So it only holds devices back: no hook
    that changes hardware ever gets it.
    """
    data = problem.unverified_data if isinstance(problem, CorruptCheckpoint) else None
    if not isinstance(data, dict) or data.get("claim_uid") != uid:
        return {}
    parts = data.get("driver_states")
    parts = parts if isinstance(parts, dict) else {}
    return {driver: _shown(part) for driver, part in parts.items() if isinstance(part, dict)}


def _shown(part: dict[str, Any]) -> DriverState:
    phase = part.get("phase") if "driver_data" in part else None  # a phase says that the driver's data is legible
    return DriverState(
        tuple(_devices(part)),
        phase=ClaimPhase(phase) if phase in list(ClaimPhase) else None,
        driver_data=part.get("driver_data"),
    )


def _devices(part: dict[str, Any]) -> Iterator[Device]:
    listed = part.get("devices")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(name := each.get("device_name"), str):
            pool, share = each.get("pool_name"), each.get("share_id")
            yield Device(
                pool if isinstance(pool, str) else "",
                name,
                share if isinstance(share, str) else None,
                admin_access=each.get("admin_access") is True,
            )
