"""Short ways to write down a claim, a pod, and a record of the cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from draState import Allocation, ClaimInfo, ClaimInfoState, ContainerClaim, Device, DriverState, Pod, ResourceClaim

GPU = "gpu.example.com"
NIC = "nic.example.com"


def claim_of(
    uid: str, *drivers: str, name: str = "", skipped: Iterable[str] = (), devices: Iterable[Device] = ()
) -> ResourceClaim:
    """An allocated claim; each driver, by default the GPU one, has the same allocation. It is reserved for the pods."""
    allocation = Allocation(tuple(devices), tuple(skipped))
    return ResourceClaim(uid, name or f"claim-{uid}", "default", dict.fromkeys(drivers or (GPU,), allocation))


def pod_of(uid: str, *claims: ResourceClaim, containers: Mapping[str, tuple[ContainerClaim, ...]] | None = None) -> Pod:
    """A pod that has reserved its claims and calls each by its UID; its one container uses all of them."""
    reserved = {claim.uid: replace(claim, reserved_for=claim.reserved_for | {uid}) for claim in claims}
    every = {"main": tuple(ContainerClaim(claim.uid) for claim in claims)}
    return Pod(uid, f"pod-{uid}", "default", reserved, every if containers is None else containers)


def state_of(uid: str, pods: Iterable[str] = (), devices: Iterable[str] = (), *, name: str = "") -> ClaimInfoState:
    """The state in the file of a claim with these devices of the GPU driver."""
    driver = DriverState(tuple(Device("pool", device) for device in devices))
    return ClaimInfoState(uid, name or f"claim-{uid}", "default", frozenset(pods), {GPU: driver})


def info_of(uid: str, pods: Iterable[str] = (), devices: Iterable[str] = (), *, name: str = "") -> ClaimInfo:
    return ClaimInfo(state_of(uid, pods, devices, name=name))
