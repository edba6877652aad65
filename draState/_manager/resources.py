"""The devices that a container gets from its pod's claims, for the runtime and for monitoring agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .._claims.cache import ClaimInfoCache
from .._claims.info import ClaimInfo
from .._claims.state import Device
from .._errors import ClaimInvalid, ClaimNotPrepared
from .pod import ContainerClaim, Pod, ResourceClaim


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """CDI devices for the runtime: all of them, each once and in order, and by (claim, request)."""

    cdi_devices: tuple[str, ...]
    by_request: Mapping[tuple[str, str], tuple[str, ...]]  # by (claim, request)


@dataclass(frozen=True, slots=True)
class ClaimResource:
    """One device in the PodResources view."""

    driver_name: str
    pool_name: str
    device_name: str
    cdi_devices: tuple[str, ...] = ()
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class DynamicResource:
    """One claim of a container in the PodResources view."""

    claim_name: str
    claim_namespace: str
    claim_resources: tuple[ClaimResource, ...]  # its devices


@dataclass(frozen=True, slots=True)
class PodResources:
    """A pod in the PodResources view: its dynamic resources by container."""

    name: str
    namespace: str
    containers: Mapping[str, tuple[DynamicResource, ...]]


def container_claim_infos(cache: ClaimInfoCache, pod: Pod, container: str) -> tuple[ClaimInfo, ...]:
    """The claims that a container uses, each once, if they are in the cache."""
    uids = dict.fromkeys(wanted.uid for _, wanted in uses(pod, container))
    return tuple(claim for uid in uids if (claim := cache.get(uid)))


def container_resources(cache: ClaimInfoCache, pod: Pod, container: str) -> ContainerResources:
    """The CDI devices of a container. Raises ClaimNotPrepared if one of its claims is not ready."""
    by_request: dict[tuple[str, str], tuple[str, ...]] = {}
    for use, wanted in uses(pod, container):
        claim = _ready(cache, pod, wanted)
        ids = [cdi for _, device in devices_of(claim, use.request) for cdi in device.cdi_device_ids]
        by_request[use.claim, use.request] = tuple(dict.fromkeys(ids))
    every = (cdi for ids in by_request.values() for cdi in ids)
    return ContainerResources(tuple(dict.fromkeys(every)), by_request)


def pod_resources(cache: ClaimInfoCache, pod: Pod) -> PodResources:
    """Which container uses which device; claims that are not in the cache are left out, as in kubelet."""
    containers = {}
    for container in pod.containers:
        dynamic = []
        for use, wanted in uses(pod, container):
            if claim := cache.get(wanted.uid):
                resources = tuple(_claim_resource(driver, device) for driver, device in devices_of(claim, use.request))
                dynamic.append(DynamicResource(claim.state.claim_name, claim.state.namespace, resources))
        containers[container] = tuple(dynamic)
    return PodResources(pod.name, pod.namespace, containers)


def uses(pod: Pod, container: str) -> Iterator[tuple[ContainerClaim, ResourceClaim]]:
    """The claims that a container uses, without entries that need no claim."""
    for use in pod.containers.get(container, ()):
        if use.claim not in pod.claims:
            user = f"container {container} of pod {pod.namespace}/{pod.name}"
            raise ClaimInvalid(f"{user} uses claim {use.claim!r}, which the pod does not have")
        if wanted := pod.claims[use.claim]:
            yield use, wanted


def _ready(cache: ClaimInfoCache, pod: Pod, wanted: ResourceClaim) -> ClaimInfo:
    claim = cache.get(wanted.uid)
    if claim is None or not claim.prepared or pod.uid not in claim.served.pod_uids:
        raise ClaimNotPrepared(
            f"claim {wanted.namespace}/{wanted.name} (UID {wanted.uid}) is not prepared for pod "
            f"{pod.namespace}/{pod.name}; call prepare_resources first"
        )
    return claim


def devices_of(claim: ClaimInfo, request: str) -> Iterator[tuple[str, Device]]:
    """(driver, device) of each device that serves a request of a claim; all devices for ""."""
    for driver, state in sorted(claim.served.driver_states.items()):
        for device in state.devices:
            if not request or device.serves(request):
                yield driver, device


def _claim_resource(driver: str, device: Device) -> ClaimResource:
    return ClaimResource(driver, device.pool_name, device.device_name, device.cdi_device_ids, device.share_id)
