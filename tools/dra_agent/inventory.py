"""The devices of this node, from a JSON file that the operator writes and may change while the agent runs:

{"driver": "gpu.example.com",
 "pool": "",                                              the node's name if empty or missing
 "devices": [{"name": "gpu-0",
              "shared": false,                            true: several claims at once, each with its share id
              "attributes": {"model": "a"},               or as in a ResourceSlice, for the scheduler
              "capacity": {"memory": "16Gi"},
              "taints": [{"key": "example.com/ill", "value": "yes", "effect": "NoSchedule"}],
              "env": {"GPU_0": "yes"},                    what the container gets; one name, one value
              "device_nodes": ["/dev/null"],
              "consumes_counters": {"card-0": {"memory": "10Gi"}}}],
 "shared_counters": {"card-0": {"memory": "40Gi"}},       what partitions of one card use up together
 "network_pools": [{"pool": "fabric",                     devices that do not belong to one node
                    "all_nodes": true,                    or "node_selector": {"example.com/rack": ["7", "8"]}
                    "devices": [{"name": "nic-0"}]}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from draState.plugin import Device, Inventory, NetworkPool, SettingsError


def read_file(path: str) -> bytes:
    """The bytes of the device file. Raises SettingsError."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SettingsError(f"{path}: the device file cannot be read: {error.strerror}") from error


def parse(path: str, content: bytes, node: str, driver: str = "") -> Inventory:
    """What these bytes of the device file offer, for its own driver or this one. SettingsError names file, field and
    rule."""
    try:
        inventory = _inventory(json.loads(content), node, driver)
        inventory.check()
    except (KeyError, TypeError, ValueError) as error:
        missing = f"{error} is missing" if isinstance(error, KeyError) else error
        raise SettingsError(f"{path}: not a usable device file: {missing}") from error
    return inventory


def _inventory(document: object, node: str, name: str) -> Inventory:
    if not isinstance(document, dict):
        raise TypeError("it must be an object with a driver and a list of devices")
    _only("", document, ("driver", "pool", "devices", "network_pools", "shared_counters"))
    driver, pool = name or document["driver"], document.get("pool") or node
    pools = _list("network_pools", document.get("network_pools", []))
    network = [_network_pool(f"network_pools[{number}]", each) for number, each in enumerate(pools)]
    devices = _devices("devices", document["devices"])
    return Inventory(driver, pool, devices, tuple(network), document.get("shared_counters", {}))


def _devices(where: str, entries: object) -> tuple[Device, ...]:
    listed = _list(where, entries)
    return tuple(_device(f"{where}[{number}]", each) for number, each in enumerate(listed))


def _device(where: str, entry: object) -> Device:
    if not isinstance(entry, dict) or "name" not in entry:
        raise TypeError(f"{where}: a device must be an object with a name")
    _only(f"{where}: ", entry, [each.name for each in fields(Device)])
    env = entry.get("env", {})
    if isinstance(env, dict):
        env = {name: value if isinstance(value, dict | list) else str(value) for name, value in env.items()}
    return Device(**{**entry, "env": env})


def _network_pool(where: str, entry: object) -> NetworkPool:
    if not isinstance(entry, dict) or not entry.keys() >= {"pool", "devices"}:
        raise TypeError(f"{where}: an object with a pool and devices")
    _only(f"{where}: ", entry, ("pool", "devices", "all_nodes", "node_selector"))
    if (entry.get("all_nodes") is True) == ("node_selector" in entry):
        raise ValueError(f"{where}: all_nodes, which is true, or a node_selector, and not both")
    labels = entry.get("node_selector")
    if "node_selector" in entry:
        if not isinstance(labels, dict):
            raise TypeError(f"{where}.node_selector: an object with labels and their values")
        labels = {name: tuple(given) if isinstance(given, list) else (given,) for name, given in labels.items()}
    return NetworkPool(entry["pool"], _devices(f"{where}.devices", entry["devices"]), labels)


def _only(where: str, entry: Mapping[str, Any], members: Iterable[str]) -> None:
    """A typo, or a field of a ResourceSlice that is not supported here, must not be ignored silently."""
    for member in entry:
        if member not in members:
            raise ValueError(f"{where}there is no {member[:63]!r} here, only {', '.join(members)}")


def _list(where: str, found: object) -> list[Any]:
    if not isinstance(found, list):
        raise TypeError(f"{where}: a list")
    return found
