"""A pod as the caller describes it: its claims as the API server has them, and which container uses what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .._claims.state import Device, NodeOperation


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the scheduler allocated to a claim from one driver."""

    devices: tuple[Device, ...] = ()
    skipped_operations: tuple[str, ...] = ()  # calls that the driver does not need

    @property
    def needs_driver(self) -> bool:
        """False if neither operation will ever be called."""
        calls = (NodeOperation.PREPARE, NodeOperation.UNPREPARE)
        return not all(call.is_among(self.skipped_operations) for call in calls)


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """A claim as the API server has it. `allocations`, by driver, is None while it is not allocated."""

    uid: str
    name: str
    namespace: str
    allocations: Mapping[str, Allocation] | None
    reserved_for: frozenset[str] = frozenset()  # pod UIDs


@dataclass(frozen=True, slots=True)
class ContainerClaim:
    """A container's use of one of its pod's claims: the whole claim, or one request of it."""

    claim: str  # a key of Pod.claims
    request: str = ""  # "" for the whole claim


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. `claims` maps the pod spec's names for its claims to the claims; None if no claim is needed."""

    uid: str
    name: str
    namespace: str
    claims: Mapping[str, ResourceClaim | None] = field(default_factory=dict)
    containers: Mapping[str, tuple[ContainerClaim, ...]] = field(default_factory=dict)  # what each container uses

    def needed_claims(self) -> dict[str, ResourceClaim]:
        """The claims by UID."""
        return {claim.uid: claim for claim in self.claims.values() if claim}
