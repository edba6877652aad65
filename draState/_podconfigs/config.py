"""The persisted state of a pod: the configs of its devices, and its own config.

These classes are exactly what the files contain. tests/data/draState/podconfig-baseline.json freezes them: a change
of shape needs a new version here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from checkpointmanager import Schema, UnknownFields, unknown_fields

from .._claims.state import copied

Claim = str | tuple[str, str]  # a claim's UID, or its (namespace, name)


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """The config of one device, any JSON value, and the claim it came from."""

    config: Any = field(repr=False)
    claim_uid: str
    claim_name: str
    namespace: str
    unknown: UnknownFields = unknown_fields()  # fields of newer versions

    def is_of(self, claim: Claim) -> bool:
        """True if the config came from this claim."""
        if isinstance(claim, str):
            return self.claim_uid == claim != ""
        return (self.namespace, self.claim_name) == claim

    def copy(self) -> DeviceConfig:
        """A copy whose config can be changed without changing this one."""
        return replace(self, config=copied(self.config))


@dataclass(frozen=True, slots=True)
class PodConfig:
    """The persisted state of a pod: its devices by "claim UID/device", and its own config, or None if it has none.

    Two claims of one pod may both have a device of the same name, of different drivers or pools.
    """

    devices: dict[str, DeviceConfig] = field(default_factory=dict)
    config: Any = field(default=None, repr=False)
    unknown: UnknownFields = unknown_fields()  # fields of newer versions

    def has(self, claim: Claim) -> bool:
        """True if any device's config came from this claim."""
        return any(config.is_of(claim) for config in self.devices.values())

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to keep."""
        return not self.devices and self.config is None and not self.unknown

    def copy(self) -> PodConfig:
        """A copy whose configs can be changed without changing this one."""
        devices = {name: device.copy() for name, device in self.devices.items()}
        return replace(self, devices=devices, config=copied(self.config))


def device_key(claim_uid: str, device: str) -> str:
    """The key of a device among those of a pod."""
    return f"{claim_uid}/{device}"


def to_2(pod: dict[str, Any]) -> dict[str, Any]:
    """Version 1 kept devices by their name alone."""
    devices = pod.get("devices") or {}
    pod["devices"] = {device_key(config["claim_uid"], name): config for name, config in devices.items()}
    return pod


POD_CONFIGS: Schema[PodConfig] = Schema("PodConfig", version=2, readable_by=2, type=PodConfig, migrations={1: to_2})
"""The schema of the files of a PodConfigStore."""
