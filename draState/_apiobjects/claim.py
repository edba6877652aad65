"""Reads ResourceClaim objects of the API server (resource.k8s.io/v1, as plain dicts); no other module does.

Kubelet's side needs the allocations of all drivers; a driver needs only its own, with the configs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._claims.state import Device, NodeOperation, OpaqueConfig, copied
from .._draplugin import ClaimRef
from .._driver.claim import DriverClaim
from .._errors import ClaimGone, ClaimInvalid
from .._manager.pod import Allocation, ResourceClaim

Object = Mapping[str, Any]


def read_resource_claim(resource_claim: Object) -> ResourceClaim:
    """Read a ResourceClaim object for kubelet's side. Raises ClaimInvalid if it is not one."""
    where = "the claim"
    try:
        metadata = resource_claim["metadata"]
        uid, name, namespace = text(metadata, "uid"), text(metadata, "name"), text(metadata, "namespace")
        where = str(ClaimRef(uid, name, namespace))
        status = _Status.of(resource_claim)
        allocations = None if status.results is None else _allocations(status.results)
    except (KeyError, TypeError, AttributeError) as error:
        raise ClaimInvalid(f"{where}: the API server's answer is not a ResourceClaim ({error!r})") from error
    return ResourceClaim(uid, name, namespace, allocations, frozenset(status.pods))


def read_allocation(ref: ClaimRef, resource_claim: Object | None, driver: str) -> DriverClaim:
    """Read what one driver has to provide for a claim from its ResourceClaim object, or None for a 404.

    Raises ClaimGone if that is nothing: there is no object, or it has another UID, is not allocated, or has no device
    of this driver. Raises ClaimInvalid if the claim is reserved for nobody: a prepare that comes so late is refused.
    Requests are named without the chosen alternative ("gpu", not "gpu/small"), as kubelet compares them.
    """
    where = str(ref)
    if resource_claim is None:
        raise ClaimGone(f"{where}: the API server does not have it")
    try:
        found = text(resource_claim["metadata"], "uid")
        if found != ref.uid:
            raise ClaimGone(f"{where}: the API server has UID {found} under this name; the old claim is gone")
        status = _Status.of(resource_claim)
        if not status.is_allocated:
            raise ClaimGone(f"{where} is not allocated")
        results = [result for result in status.results or () if result["driver"] == driver]
        devices = _devices(results)
        configs = _configs(status.config, driver, [result["request"] for result in results])
    except (KeyError, TypeError, AttributeError) as error:
        raise ClaimInvalid(f"{where}: the API server's answer is not a ResourceClaim ({error!r})") from error
    if not devices:
        raise ClaimGone(f"{where} has no device of driver {driver}")
    if not status.is_reserved:
        raise ClaimInvalid(f"{where} is reserved for nobody: the pod that it was allocated for is gone")
    return DriverClaim(ref.uid, ref.name, ref.namespace, devices, configs, status.pods, results=tuple(copied(results)))


def base_request(name: str) -> str:
    """The request without the alternative of its prioritized list."""
    return name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class _Status:
    """The allocation, with results None if there is none, and the pods that the claim is reserved for, UID to name."""

    is_allocated: bool  # an empty allocation does not count
    results: Sequence[Object] | None
    config: Sequence[Object]
    pods: Mapping[str, str]
    is_reserved: bool  # for a pod, or for a group of pods

    @classmethod
    def of(cls, resource_claim: Object) -> _Status:
        status = resource_claim.get("status") or {}
        allocation = status.get("allocation")
        given = (allocation or {}).get("devices") or {}
        results = None if allocation is None else mappings(given, "results")
        users = mappings(status, "reservedFor")
        pods = {text(user, "uid"): text(user, "name") for user in users if user.get("resource") == "pods"}
        return cls(bool(allocation), results, mappings(given, "config"), pods, bool(users))


def _allocations(results: Iterable[Object]) -> dict[str, Allocation]:
    by_driver: dict[str, list[Object]] = {}
    for result in results:
        by_driver.setdefault(text(result, "driver"), []).append(result)
    return {driver: Allocation(_devices(its), _skipped(its)) for driver, its in by_driver.items()}


def _skipped(results: Iterable[Object]) -> tuple[str, ...]:
    """The operations that a driver skips for a claim: those that all of its results skip."""
    each = [set(texts(result, "skipNodeOperations")) for result in results]
    named = [skipped for skipped in each if NodeOperation.ALL not in skipped]
    return tuple(sorted(set.intersection(*named))) if named else (str(NodeOperation.ALL),)


def _devices(results: Iterable[Object]) -> tuple[Device, ...]:
    """Merge the results: a device that serves several requests is one device with several request names.

    It has admin access only if all of its results do.
    """
    merged: dict[tuple[Any, ...], Device] = {}
    for device in map(_device, results):
        known = merged.get(device.identity, replace(device, request_names=()))
        names = dict.fromkeys((*known.request_names, *device.request_names))
        admin = known.admin_access and device.admin_access
        merged[device.identity] = replace(known, request_names=tuple(names), admin_access=admin)
    return tuple(merged.values())


def _device(result: Object) -> Device:
    capacity = result.get("consumedCapacity")
    return Device(
        text(result, "pool"),
        text(result, "device"),
        result.get("shareID") or None,
        (base_request(text(result, "request")),),
        admin_access=bool(result.get("adminAccess")),
        consumed_capacity={name: str(amount) for name, amount in capacity.items()} if capacity else None,
    )


def _configs(config: Iterable[Object], driver: str, allocated: Sequence[str]) -> tuple[OpaqueConfig, ...]:
    """The driver's configs in order of precedence: those of the claim come last."""
    read = [_config(each, allocated) for each in config if (each.get("opaque") or {}).get("driver") == driver]
    return tuple(sorted(filter(None, read), key=lambda config: not config.from_class))


def _config(config: Object, allocated: Iterable[str]) -> OpaqueConfig | None:
    """The config; None if it is for an alternative that was not chosen."""
    named = set(texts(config, "requests"))
    concerned = dict.fromkeys(base_request(name) for name in allocated if named & {name, base_request(name)})
    if named and not concerned:
        return None
    parameters = copied(config["opaque"].get("parameters"))
    return OpaqueConfig(parameters, tuple(concerned), config.get("source") == "FromClass")


def text(item: Mapping[str, Any], field: str) -> str:
    """A required string. Raises KeyError or TypeError."""
    value = item[field]
    if not isinstance(value, str):
        raise TypeError(f"{field} is not a string")
    return value


def texts(item: Mapping[str, Any], field: str) -> list[str]:
    """A list of strings, empty if the field is missing."""
    values = _list(item, field)
    if not all(isinstance(value, str) for value in values):
        raise TypeError(f"{field} is not a list of strings")
    return values


def mappings(item: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    """A list of objects, empty if the field is missing."""
    values = _list(item, field)
    if not all(isinstance(value, Mapping) for value in values):
        raise TypeError(f"{field} is not a list of objects")
    return values


def _list(item: Mapping[str, Any], field: str) -> list[Any]:
    values = item.get(field)
    if values is None:
        return []
    if not isinstance(values, list):
        raise TypeError(f"{field} is not a list")
    return values
