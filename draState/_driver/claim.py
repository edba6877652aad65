"""A claim as its driver sees it: the allocation, and the result of setting it up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from .._claims.info import ClaimInfo
from .._claims.state import ClaimInfoState, ClaimPhase, Device, DriverState, OpaqueConfig, copied
from .._draplugin import ClaimRef

_NO_PODS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DriverClaim:
    """A claim's allocation from one driver and, once it is set up, the result.

    `configs` are in order of precedence: later ones win. `driver_data` is any JSON value that the driver wants back
    when the claim is torn down.
    """

    uid: str
    name: str
    namespace: str
    devices: tuple[Device, ...] = ()  # chosen by the scheduler
    configs: tuple[OpaqueConfig, ...] = ()
    pods: Mapping[str, str] = field(default_factory=lambda: _NO_PODS)  # the pods it is reserved for: UID to name
    driver_data: Any = field(default=None, repr=False)
    results: tuple[Mapping[str, Any], ...] = field(default=(), repr=False, compare=False)  # see result_of

    @property
    def ref(self) -> ClaimRef:
        """Its UID, name and namespace."""
        return ClaimRef(self.uid, self.name, self.namespace)

    def configs_of(self, device: Device) -> tuple[OpaqueConfig, ...]:
        """The configs that apply to one device, highest precedence last."""
        return tuple(
            config
            for config in self.configs
            if not config.requests or not device.request_names or set(config.requests) & set(device.request_names)
        )

    def result_of(self, device: Device) -> Mapping[str, Any]:
        """The device's allocation as the API server has it, with tolerations, bindingConditions, consumedCapacity.

        For `check`, `choose` and `set_up`, which follow a look-up; empty for a claim from memory.
        """
        wanted = device.identity
        found = (each for each in self.results if (each["pool"], each["device"], each.get("shareID") or None) == wanted)
        return next(found, {})

    def same_devices(self, other: DriverClaim) -> bool:
        """True if both have the same devices, regardless of order and requests."""
        return _identities(self.devices) == _identities(other.devices)

    def same_allocation(self, other: DriverClaim) -> bool:
        """True if a set-up for one is right for the other."""
        return self.same_devices(other) and self.configs == other.configs

    def copy(self) -> DriverClaim:
        """A copy whose JSON values can be changed without changing this claim."""
        return replace(
            self,
            configs=_copied(self.configs),
            driver_data=copied(self.driver_data),
            results=tuple(map(copied, self.results)),
        )

    @classmethod
    def remembered(cls, claim: ClaimInfo, driver: str) -> DriverClaim:
        """Build the driver's view of a claim in the cache."""
        state = claim.state
        did = state.driver_states.get(driver, DriverState())
        pods = {uid: claim.annotations.get(uid, "") for uid in state.pod_uids}
        return cls(state.claim_uid, state.claim_name, state.namespace, did.devices, did.configs, pods, did.driver_data)

    def state(self, before: ClaimInfoState | None, driver: str, phase: ClaimPhase | None) -> ClaimInfoState:
        """The state to write. Other drivers and fields of newer versions stay as they were."""
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


def _copied(configs: Iterable[OpaqueConfig]) -> tuple[OpaqueConfig, ...]:
    return tuple(replace(config, parameters=copied(config.parameters)) for config in configs)


def _identities(devices: Iterable[Device]) -> set[tuple[Any, ...]]:
    return {(*device.identity, device.admin_access) for device in devices}
