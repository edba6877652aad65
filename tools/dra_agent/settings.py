"""What the agent is told when it is started: the folders, the devices, the API server.

The devices stand in a JSON file of their own, which the operator writes:

    {"driver": "gpu.example.com",
     "pool": "",                                              the node's name if empty or missing
     "devices": [{"name": "gpu-0",
                  "shared": false,                            true: several claims at once, each with its share id
                  "attributes": {"model": {"string": "a"}},   as in a ResourceSlice, for the scheduler
                  "capacity": {"memory": {"value": "16Gi"}},
                  "env": {"GPU": "0"},                        what the container gets
                  "device_nodes": ["/dev/null"]}]}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
MAX_DRIVER_NAME = 63  # characters, kubelet's limit


class SettingsError(Exception):
    """The agent cannot be started so. Says where and what."""


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """One device of the pool, as the operator configured it."""

    name: str
    shared: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)
    capacity: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """What this node offers: one driver, one pool."""

    driver: str
    pool: str
    devices: Mapping[str, OfferedDevice]

    @classmethod
    def read(cls, path: str, node: str) -> Inventory:
        try:
            with open(path, encoding="utf-8") as file:
                told = json.load(file)
        except (OSError, ValueError) as error:
            raise SettingsError(f"{path}: the device file cannot be read: {error}") from error
        try:
            devices = [_device(device) for device in told["devices"]]
            inventory = cls(_dns_name(told["driver"]), told.get("pool") or node, {d.name: d for d in devices})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SettingsError(f"{path}: not a device file: {type(error).__name__}: {error}") from error
        if len(inventory.devices) < len(devices):
            raise SettingsError(f"{path}: two devices have the same name")
        return inventory


@dataclass(frozen=True, slots=True)
class Settings:
    """Paths are absolute. `boot_id` is the test switch for reboots: None means the kernel's."""

    node: str
    inventory: Inventory
    state: str
    plugin: str
    registry: str
    cdi: str
    kubeconfig: str = ""
    api_timeout: float = 2.0
    release_orphans_after: float | None = None
    http: tuple[str, int] = ("127.0.0.1", 0)
    grace: float = 10.0
    boot_id: str | None = None
    owner: str = ""
    allow_insecure: bool = False

    @property
    def dra_socket(self) -> str:
        return os.path.join(self.plugin, "dra.sock")

    @property
    def registration_socket(self) -> str:
        return os.path.join(self.registry, f"{self.inventory.driver}-reg.sock")


def _device(told: Mapping[str, Any]) -> OfferedDevice:
    nodes = told.get("device_nodes", [])
    env = {str(name): str(value) for name, value in told.get("env", {}).items()}
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise TypeError("device_nodes is a list of paths")
    return OfferedDevice(
        _dns_name(told["name"]),
        bool(told.get("shared", False)),
        dict(told.get("attributes", {})),
        dict(told.get("capacity", {})),
        env,
        tuple(nodes),
    )


def _dns_name(name: str) -> str:
    if len(name) > MAX_DRIVER_NAME or not _DNS_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a DNS name of at most {MAX_DRIVER_NAME} characters")
    return name
