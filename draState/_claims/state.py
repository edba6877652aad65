"""The persisted state of a claim: enough to unprepare it when everything else is gone.

These classes are exactly what the files contain. tests/data/draState/baseline.json freezes them: a change of shape
needs a new version. A file has had four shapes, each with a golden file in the tests that must never change:

    1  the 2023 kubelet: one driver, and a list of CDI devices
    2  CDI devices by driver
    3  drivers with devices, each with pool, share and requests; and skipped operations
    4  the phase of the claim, the configs, the driver's own data; admin access and capacity of devices

An agent of version 3 must not touch a claim of version 4: it would answer an unprepared claim as prepared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from checkpointmanager import Schema, SharedText, UnknownFields, UnstorableValue, unknown_fields


class NodeOperation(StrEnum):
    """A call that a driver may declare unnecessary, under kubelet's name for it."""

    ALL = "*"  # both
    PREPARE = "NodePrepareResources"  # kubelet requests a claim's devices
    UNPREPARE = "NodeUnprepareResources"  # kubelet gives them back

    def is_among(self, skipped: Iterable[str]) -> bool:
        """True if the operation is skipped, by its own name or by `*`."""
        return bool({self.value, self.ALL.value}.intersection(skipped))


class ClaimPhase(StrEnum):
    """A ClaimPreparer's progress with a claim. Each phase is durable before the next step begins."""

    PREPARING = "preparing"  # set_up may have begun
    PREPARED = "prepared"  # set_up has succeeded, and its result is in the file
    UNPREPARING = "unpreparing"  # tear_down may have begun


@dataclass(frozen=True, slots=True)
class Device:
    """One device that a driver prepared. Without request names it belongs to every request of the claim."""

    pool_name: SharedText
    device_name: SharedText
    share_id: str | None = None  # the id of the claim's share, if several claims share the device
    request_names: tuple[SharedText, ...] = ()  # the claim's requests that it serves
    cdi_device_ids: tuple[str, ...] = ()  # what the container runtime injects
    admin_access: bool = False  # for monitoring: does not occupy the device
    consumed_capacity: dict[SharedText, str] | None = field(default=None, hash=False)  # of the share
    unknown: UnknownFields = unknown_fields()  # fields of newer versions

    @property
    def identity(self) -> tuple[str, str, str | None]:
        """Equal for the same device in two answers of its driver."""
        return self.pool_name, self.device_name, self.share_id

    def serves(self, request: str) -> bool:
        """True for the request itself and for one of its alternatives ("request/alternative")."""
        if not self.request_names:
            return True
        return any(name == request or name.startswith(f"{request}/") for name in self.request_names)


@dataclass(frozen=True, slots=True)
class OpaqueConfig:
    """Parameters for the driver from a claim or its class. Without requests they apply to all requests."""

    parameters: Any = field(repr=False)  # any JSON value
    requests: tuple[SharedText, ...] = ()
    from_class: bool = False  # from the DeviceClass; the claim's own configs win
    unknown: UnknownFields = unknown_fields()  # fields of newer versions


@dataclass(frozen=True, slots=True)
class DriverState:
    """What one driver did for a claim. Skipped operations are text, so that unknown ones survive a rewrite.

    Only a ClaimPreparer sets `phase`, `configs` and `driver_data`. `phase` is None if a DRAManager, or a version
    before 4, wrote the file.
    """

    devices: tuple[Device, ...] = ()
    skipped_operations: tuple[str, ...] = ()  # calls that the driver does not need
    phase: ClaimPhase | None = None
    configs: tuple[OpaqueConfig, ...] = ()  # the configs it was set up with
    driver_data: Any = field(default=None, repr=False)  # what set_up returned for tear_down
    unknown: UnknownFields = unknown_fields()  # fields of newer versions

    def skips(self, operation: NodeOperation) -> bool:
        """True if the driver does not need this call."""
        return operation.is_among(self.skipped_operations)

    def with_devices(self, devices: Iterable[Device]) -> DriverState:
        """Replace the devices. A device that stays keeps the fields that a newer version added to it."""
        kept = {device.identity: device.unknown for device in self.devices}
        return replace(
            self,
            devices=tuple(replace(device, unknown=kept.get(device.identity, device.unknown)) for device in devices),
        )


@dataclass(frozen=True, slots=True)
class ClaimInfoState:
    """One claim, identified by its UID: a new claim may have the name of an old one."""

    claim_uid: str
    claim_name: str
    namespace: SharedText
    pod_uids: frozenset[str] = frozenset()  # the pods that refer to it
    driver_states: dict[str, DriverState] = field(default_factory=dict)  # by the driver's name
    unknown: UnknownFields = unknown_fields()  # fields of newer versions

    def devices(self) -> set[tuple[str, str, str]]:
        """(driver, pool, device) of every device that this claim holds."""
        return {
            (driver, device.pool_name, device.device_name)
            for driver, state in self.driver_states.items()
            for device in state.devices
        }


def to_2(claim: dict[str, Any]) -> dict[str, Any]:
    """The single driver becomes a key."""
    devices = claim.pop("CdiDevices", None) or []
    claim["CDIDevices"] = {claim["DriverName"]: devices}
    return claim


def to_3(claim: dict[str, Any]) -> dict[str, Any]:
    """CDI ids without pool or request become one device that belongs to every request.

    A driver without CDI devices is kept: it has to be called when the claim is unprepared.
    """
    by_driver: dict[str, list[str]] = dict(claim.get("CDIDevices") or {})
    if driver := claim.get("DriverName"):
        by_driver.setdefault(driver, [])
    return {
        "claim_uid": claim["ClaimUID"],
        "claim_name": claim["ClaimName"],
        "namespace": claim["Namespace"],
        "pod_uids": sorted(claim.get("PodUIDs") or {}),
        "driver_states": {driver: {"devices": _one_device(ids)} for driver, ids in by_driver.items()},
    }


def _one_device(cdi_device_ids: list[str] | None) -> list[dict[str, Any]]:
    return [{"pool_name": "", "device_name": "", "cdi_device_ids": cdi_device_ids}] if cdi_device_ids else []


def to_4(claim: dict[str, Any]) -> dict[str, Any]:
    """Without a phase nobody knows whether set-up finished, so the claim is set up again before it is answered."""
    return claim


CLAIMS: Schema[ClaimInfoState] = Schema(
    "ClaimInfo", version=4, readable_by=4, type=ClaimInfoState, migrations={1: to_2, 2: to_3, 3: to_4}
)
"""The schema of the files of a ClaimInfoCache."""


def copied(value: Any) -> Any:
    """A copy of a JSON value. Any other value is passed through and refused when it is written."""
    try:
        return _copy(value)
    except RecursionError:
        raise UnstorableValue("$", "is nested too deeply, or contains itself") from None


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {name: _copy(member) for name, member in value.items()}
    if type(value) is list:
        return [_copy(member) for member in value]
    return value
