"""Reads Pod objects of the API server (v1, as plain dicts): the claims of a pod, and which container uses them.

Names follow kubelet's rules: a claim is named in the pod itself, or was generated from a template and is named in the
pod's status. The claim that the scheduler creates for extended resources has no name in the pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from .._errors import ClaimInvalid
from .._manager.pod import ContainerClaim, Pod, ResourceClaim
from .claim import Object, mappings, read_resource_claim, text

EXTENDED = ""  # the key in Pod.claims of the claim for extended resources
SCHEDULING = "scheduling.k8s.io"  # the API group of pod groups
_NUMBER = re.compile(r"[+-]?([0-9.]*)")  # the number of a quantity, without suffix or exponent


def claim_names(pod: Object) -> tuple[str, ...]:
    """The names of the ResourceClaim objects, in the pod's namespace, that read_pod needs; raises the same errors."""
    with _reading(pod) as where:
        return tuple(dict.fromkeys(entry.name for entry in _entries(pod, where) if entry.name is not None))


def read_pod(pod: Object, claims: Mapping[str, Object]) -> Pod:
    """Read a Pod object together with the ResourceClaim objects that `claim_names` names.

    Raises ClaimInvalid if a claim is missing or not created yet, is in another namespace, or was generated from a
    template for another owner: this pod, or the pod group that it belongs to, must own the claim. A claim reserved for
    the pod group is reserved for the pod. An entry that needs no claim is None in Pod.claims; the claim for extended
    resources has the key "".
    """
    with _reading(pod) as where:
        metadata = pod["metadata"]
        entries = list(_entries(pod, where))
        return Pod(
            text(metadata, "uid"),
            text(metadata, "name"),
            text(metadata, "namespace"),
            {entry.key: _claim(pod, entry, claims, where) for entry in entries},
            {text(container, "name"): tuple(_uses(pod, container)) for container in _containers(pod)},
        )


@dataclass(frozen=True, slots=True)
class _Entry:
    """One claim of a pod: the pod's name for it, and the name of the object; None if no claim is needed."""

    key: str
    name: str | None
    generated: bool = False


@contextmanager
def _reading(pod: Object) -> Iterator[str]:
    """Name the pod in every error."""
    where = "the pod"
    try:
        where = f"pod {text(pod['metadata'], 'namespace')}/{text(pod['metadata'], 'name')}"
        yield where
    except (KeyError, TypeError, AttributeError) as error:
        raise ClaimInvalid(f"{where}: the API server's answer is not a Pod ({error!r})") from error


def _entries(pod: Object, where: str) -> Iterator[_Entry]:
    for entry in mappings(pod["spec"], "resourceClaims"):
        key = text(entry, "name")
        if entry.get("resourceClaimName") is not None:
            yield _Entry(key, text(entry, "resourceClaimName"))
        elif entry.get("resourceClaimTemplateName") is not None:
            yield _Entry(key, _generated_name(pod, key, where), generated=True)
        else:
            raise ClaimInvalid(f"{where}: its claim {key!r} names neither a claim nor a template")
    if extended := _extended(pod):
        yield _Entry(EXTENDED, text(extended, "resourceClaimName"))


def _generated_name(pod: Object, key: str, where: str) -> str | None:
    for status in mappings(pod.get("status") or {}, "resourceClaimStatuses"):
        if text(status, "name") == key:
            return None if status.get("resourceClaimName") is None else text(status, "resourceClaimName")
    raise ClaimInvalid(f"{where}: its claim {key!r} is not created yet; try again")


def _extended(pod: Object) -> Object | None:
    found: Object | None = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    return found


def _claim(pod: Object, entry: _Entry, claims: Mapping[str, Object], where: str) -> ResourceClaim | None:
    if entry.name is None:
        return None
    if claims.get(entry.name) is None:
        raise ClaimInvalid(f"{where}: there is no claim {entry.name}")
    resource_claim = claims[entry.name]
    claim = read_resource_claim(resource_claim)
    named = f"claim {claim.namespace}/{claim.name} (UID {claim.uid})"
    if claim.namespace != pod["metadata"]["namespace"]:
        raise ClaimInvalid(f"{named} is not in the namespace of {where}")
    if entry.generated and not _is_owner(pod, resource_claim):
        raise ClaimInvalid(f"{named} was not created for {where}, which does not own it")
    if _is_reserved_for_group(pod, resource_claim):
        return replace(claim, reserved_for=claim.reserved_for | {text(pod["metadata"], "uid")})
    return claim


def _is_owner(pod: Object, resource_claim: Object) -> bool:
    """True if the pod or its pod group owns the claim.

    The pod knows only the name of its group, and the version of the group's API may change.
    """
    owners = mappings(resource_claim["metadata"], "ownerReferences")
    controller = next((owner for owner in owners if owner.get("controller") is True), {})
    if controller.get("uid") == pod["metadata"]["uid"]:
        return True
    is_group = controller.get("kind") == "PodGroup" and text(controller, "apiVersion").startswith(f"{SCHEDULING}/")
    return is_group and controller.get("name") == _group(pod)


def _is_reserved_for_group(pod: Object, resource_claim: Object) -> bool:
    group = _group(pod)
    users = mappings(resource_claim.get("status") or {}, "reservedFor")
    of_groups = [user for user in users if (user.get("apiGroup"), user.get("resource")) == (SCHEDULING, "podgroups")]
    return group is not None and any(user.get("name") == group for user in of_groups)


def _group(pod: Object) -> str | None:
    group: str | None = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return group


def _containers(pod: Object) -> list[Object]:
    return [*mappings(pod["spec"], "initContainers"), *mappings(pod["spec"], "containers")]


def _uses(pod: Object, container: Object) -> Iterator[ContainerClaim]:
    resources = container.get("resources") or {}
    for use in mappings(resources, "claims"):
        yield ContainerClaim(text(use, "name"), use.get("request") or "")
    requested = {name for name, amount in (resources.get("requests") or {}).items() if not _is_zero(amount)}
    for mapping in mappings(_extended(pod) or {}, "requestMappings"):
        if text(mapping, "containerName") == container["name"] and text(mapping, "resourceName") in requested:
            yield ContainerClaim(EXTENDED, text(mapping, "requestName"))


def _is_zero(quantity: object) -> bool:
    number = _NUMBER.match(str(quantity))
    return not (number and number[1].strip("0."))
