"""A claim as its driver sees it, and how it is read from the ResourceClaim object of the API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ._claiminfo import ClaimInfo
from ._claimstate import ClaimInfoState, ClaimPhase, Device, DriverState, OpaqueConfig
from ._driver import ClaimRef
from ._errors import ClaimGone, ClaimInvalid
from ._jsoncopy import copied

_NO_PODS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DriverClaim:
    """What the scheduler gave a claim from one driver and, once that is set up, what came of it.

    `configs` are in the order of their precedence: later ones win. `driver_data` is any JSON value that the driver
    wants back when the claim is torn down.
    """

    uid: str
    name: str
    namespace: str
    devices: tuple[Device, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    pods: Mapping[str, str] = field(default_factory=lambda: _NO_PODS)  # that it is reserved for: UID to name
    driver_data: Any = field(default=None, repr=False)

    @property
    def ref(self) -> ClaimRef:
        return ClaimRef(self.uid, self.name, self.namespace)

    def configs_of(self, device: Device) -> tuple[OpaqueConfig, ...]:
        """Those that concern one device, the strongest last."""
        return tuple(
            config
            for config in self.configs
            if not config.requests or not device.request_names or set(config.requests) & set(device.request_names)
        )

    def same_devices(self, other: DriverClaim) -> bool:
        """Whether both have the same devices, in whatever order and for whichever requests."""
        return _identities(self.devices) == _identities(other.devices)

    def same_allocation(self, other: DriverClaim) -> bool:
        """Whether what is set up for one is right for the other."""
        return self.same_devices(other) and self.configs == other.configs

    def copy(self) -> DriverClaim:
        """One whose JSON values can be changed without changing this one's."""
        return replace(self, configs=_copied(self.configs), driver_data=copied(self.driver_data))

    @classmethod
    def remembered(cls, claim: ClaimInfo, driver: str) -> DriverClaim:
        """What the cache has of it."""
        state = claim.state
        did = state.driver_states.get(driver, DriverState())
        pods = {uid: claim.annotations.get(uid, "") for uid in state.pod_uids}
        return cls(state.claim_uid, state.claim_name, state.namespace, did.devices, did.configs, pods, did.driver_data)

    def state(self, before: ClaimInfoState | None, driver: str, phase: ClaimPhase) -> ClaimInfoState:
        """What is to be on disk. Other drivers, and what a newer version added, stay as they were."""
        before = before or ClaimInfoState(self.uid, self.name, self.namespace)
        did = before.driver_states.get(driver, DriverState()).with_devices(self.devices)
        did = replace(did, phase=phase, configs=_copied(self.configs), driver_data=copied(self.driver_data))
        return replace(
            before,
            claim_name=self.name,
            namespace=self.namespace,
            pod_uids=frozenset(self.pods),
            driver_states={**before.driver_states, driver: did},
        )


def read_allocation(ref: ClaimRef, resource_claim: Mapping[str, Any], driver: str) -> DriverClaim:
    """What a ResourceClaim object (resource.k8s.io/v1, as a dict) gives to a claim from one driver.

    ClaimGone if that is nothing: it has another UID, is not allocated, or not from this driver. Requests are named
    without the alternative that was chosen ("gpu", not "gpu/small"), because kubelet compares them so.
    """
    where = f"claim {ref.namespace}/{ref.name} (UID {ref.uid})"
    try:
        found = resource_claim["metadata"]["uid"]
        if found != ref.uid:
            raise ClaimGone(f"{where}: the API server has UID {found} under this name; the old claim is gone")
        status = resource_claim.get("status") or {}
        if not status.get("allocation"):
            raise ClaimGone(f"{where} is not allocated")
        given = status["allocation"].get("devices") or {}
        results = [result for result in given.get("results") or [] if result["driver"] == driver]
        devices = _merged(map(_device, results))
        requests = [result["request"] for result in results]
        configs = [_config(config, requests) for config in given.get("config") or [] if _is_for(config, driver)]
        consumers = status.get("reservedFor") or []
        pods = {user["uid"]: user["name"] for user in consumers if user.get("resource") == "pods"}
    except (KeyError, TypeError, AttributeError) as error:
        raise ClaimInvalid(f"{where}: the API server's answer is not a ResourceClaim ({error!r})") from error
    if not devices:
        raise ClaimGone(f"{where} has no device of driver {driver}")
    known = sorted(filter(None, configs), key=lambda config: not config.from_class)  # what the claim says comes last
    return DriverClaim(ref.uid, ref.name, ref.namespace, devices, tuple(known), pods)


def _device(result: Mapping[str, Any]) -> Device:
    capacity = result.get("consumedCapacity")
    return Device(
        result["pool"],
        result["device"],
        result.get("shareID") or None,
        (_request(result["request"]),),
        admin_access=bool(result.get("adminAccess")),
        consumed_capacity={name: str(amount) for name, amount in capacity.items()} if capacity else None,
    )


def _merged(devices: Iterable[Device]) -> tuple[Device, ...]:
    """A device that serves several requests of a claim is one device with several request names.

    It is for administration only if it is for nothing else.
    """
    merged: dict[tuple[Any, ...], Device] = {}
    for device in devices:
        known = merged.get(device.identity, replace(device, request_names=()))
        names = dict.fromkeys((*known.request_names, *device.request_names))
        admin = known.admin_access and device.admin_access
        merged[device.identity] = replace(known, request_names=tuple(names), admin_access=admin)
    return tuple(merged.values())


def _is_for(config: Mapping[str, Any], driver: str) -> bool:
    return bool((config.get("opaque") or {}).get("driver") == driver)


def _config(config: Mapping[str, Any], allocated: Iterable[str]) -> OpaqueConfig | None:
    """None if it is for an alternative that was not chosen."""
    named = set(config.get("requests") or [])
    concerned = dict.fromkeys(_request(request) for request in allocated if named & {request, _request(request)})
    if named and not concerned:
        return None
    parameters = copied(config["opaque"].get("parameters"))
    return OpaqueConfig(parameters, tuple(concerned), config.get("source") == "FromClass")


def _copied(configs: Iterable[OpaqueConfig]) -> tuple[OpaqueConfig, ...]:
    return tuple(replace(config, parameters=copied(config.parameters)) for config in configs)


def _request(name: str) -> str:
    return name.partition("/")[0]


def _identities(devices: Iterable[Device]) -> set[tuple[Any, ...]]:
    return {(*device.identity, device.admin_access) for device in devices}
