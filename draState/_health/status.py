"""Finds the pods that a change of health affects, and what kubelet then writes into the status of a pod."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .._apiobjects.claim import base_request
from .._apiobjects.pod import EXTENDED
from .._claims.cache import ClaimInfoCache
from .._manager.pod import Pod
from .._manager.resources import devices_of, uses
from .device import DeviceHealth, Health
from .store import DeviceHealthStore, HealthChange

_WORST = (Health.UNHEALTHY, Health.UNKNOWN, Health.HEALTHY)


@dataclass(frozen=True, slots=True)
class ResourceHealth:
    """One device: its first CDI id, or driver/pool/device if it has none."""

    resource_id: str
    health: Health
    message: str = field(default="", repr=False)  # why, for people


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """A container's use of a claim: "claim:name" or "claim:name/request" (the pod's name for it), and its devices."""

    name: str
    resources: tuple[ResourceHealth, ...]


def concerned_pods(claims: ClaimInfoCache, change: HealthChange) -> frozenset[str]:
    """The UIDs of the pods that use one of the devices, or a share of it."""
    holding = {uid for pool, device in change.devices for uid in claims.holders(change.driver, pool, device)}
    found = (claims.get(uid) for uid in holding)
    return frozenset(pod_uid for claim in found if claim for pod_uid in claim.state.pod_uids)


def pod_health(claims: ClaimInfoCache, health: DeviceHealthStore, pod: Pod) -> dict[str, tuple[ResourceStatus, ...]]:
    """The allocatedResourcesStatus of each container of a pod that has devices.

    Claims that are not in the cache are left out, and so is the claim for extended resources: kubelet does not
    report on it. Devices with the same CDI id are one resource, with the worst health among them.
    """
    containers = {}
    for container in pod.containers:
        statuses = {}
        for use, wanted in uses(pod, container):
            claim = claims.get(wanted.uid)
            if claim is None or use.claim == EXTENDED:
                continue
            known = [
                (_resource_id(driver, device.cdi_device_ids, found), found)
                for driver, device in devices_of(claim, base_request(use.request))
                for found in [health.get(driver, device.pool_name, device.device_name)]
            ]
            if known:
                name = "/".join(filter(None, [f"claim:{use.claim}", use.request]))
                statuses[name] = ResourceStatus(name, _resources(known))
        if statuses:
            containers[container] = tuple(statuses.values())
    return containers


def _resource_id(driver: str, cdi_device_ids: tuple[str, ...], device: DeviceHealth) -> str:
    return cdi_device_ids[0] if cdi_device_ids else f"{driver}/{device.pool_name}/{device.device_name}"


def _resources(known: Iterable[tuple[str, DeviceHealth]]) -> tuple[ResourceHealth, ...]:
    by_id: dict[str, list[DeviceHealth]] = {}
    for resource_id, device in known:
        by_id.setdefault(resource_id, []).append(device)
    worst = [(each, min(its, key=lambda device: _WORST.index(device.health))) for each, its in by_id.items()]
    return tuple(ResourceHealth(resource_id, device.health, device.message) for resource_id, device in worst)
