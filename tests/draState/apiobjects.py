"""Short ways to write down Pod and ResourceClaim objects as the API server gives them."""

from __future__ import annotations

from typing import Any

GPU, NIC = "gpu.example.com", "nic.example.com"
GROUPS = "scheduling.k8s.io"


def result(request: str = "r", device: str = "d0", driver: str = GPU, **more: Any) -> dict[str, Any]:
    """One allocation result."""
    return {"request": request, "driver": driver, "pool": "p", "device": device, **more}


def skipping(device: str, *operations: str, driver: str = GPU) -> dict[str, Any]:
    skipped = {"skipNodeOperations": list(operations)} if operations else {}
    return {**result(device=device, driver=driver), **skipped}


def claim_object(
    name: str,
    *results: dict[str, Any],
    namespace: str = "ns",
    owners: list[dict[str, Any]] | None = None,
    reserved: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """An allocated claim, which has the UID "uid-of-<name>"."""
    metadata: dict[str, Any] = {"uid": f"uid-of-{name}", "name": name, "namespace": namespace}
    if owners is not None:
        metadata["ownerReferences"] = owners
    status: dict[str, Any] = {"allocation": {"devices": {"results": list(results)}}}
    if reserved is not None:
        status["reservedFor"] = reserved
    return {"metadata": metadata, "spec": {}, "status": status}


def owned_by(uid: str, **more: Any) -> list[dict[str, Any]]:
    return [{"uid": "somebody", "controller": False}, {"uid": uid, "controller": True, **more}]


def owned_by_group(name: str, version: str = "v1beta1") -> list[dict[str, Any]]:
    return owned_by("group-1", apiVersion=f"{GROUPS}/{version}", kind="PodGroup", name=name)


def for_pod(uid: str) -> dict[str, Any]:
    return {"resource": "pods", "name": f"pod-{uid}", "uid": uid}


def for_group(name: str, **more: Any) -> dict[str, Any]:
    return {"apiGroup": GROUPS, "resource": "podgroups", "name": name, "uid": f"group-{name}", **more}


def pod_object(
    *claims: dict[str, Any], status: dict[str, Any] | None = None, group: str = "", **containers: dict[str, Any]
) -> dict[str, Any]:
    """The pod with UID 1 and its containers with their resources."""
    spec: dict[str, Any] = {
        "resourceClaims": list(claims),
        "containers": [{"name": name, "resources": resources} for name, resources in containers.items()],
    }
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    metadata = {"uid": "1", "name": "pod", "namespace": "ns"}
    return {"metadata": metadata, "spec": spec, "status": status or {}}


def named(key: str, claim: str) -> dict[str, Any]:
    """An entry of the pod for an existing claim."""
    return {"name": key, "resourceClaimName": claim}


def templated(key: str) -> dict[str, Any]:
    """An entry of the pod for a claim that is generated."""
    return {"name": key, "resourceClaimTemplateName": "template"}


def generated(**names: str | None) -> dict[str, Any]:
    """The pod's status with the names of generated claims; None where none is needed."""
    statuses = [{"name": key} | ({"resourceClaimName": name} if name else {}) for key, name in names.items()]
    return {"resourceClaimStatuses": statuses}
