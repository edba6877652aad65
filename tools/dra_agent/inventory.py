"""The devices of this node, from a JSON file that the operator writes and may change while the agent runs:

{"driver": "gpu.example.com",
 "pool": "",                                              the node's name if empty or missing
 "devices": [{"name": "gpu-0",
              "shared": false,                            true: several claims at once, each with its share id
              "attributes": {"model": {"string": "a"}},   as in a ResourceSlice, for the scheduler
              "capacity": {"memory": {"value": "16Gi"}},
              "taints": [{"key": "example.com/ill", "value": "yes", "effect": "NoSchedule"}],
              "env": {"GPU_0": "yes"},                    what the container gets; one name, one value
              "device_nodes": ["/dev/null"]}],
 "network_pools": [{"pool": "fabric",                     devices that do not belong to one node
                    "all_nodes": true,                    or "node_selector": {"example.com/rack": ["7", "8"]}
                    "devices": [{"name": "nic-0"}]}]}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from . import grammar


class SettingsError(Exception):
    """The agent cannot start with these settings. The text says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """One device of the pool, as the operator configured it."""

    name: str
    shared: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)
    capacity: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[str, ...] = ()
    taints: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkPool:
    """Devices that several nodes reach: nodes that have, for each label, one of its values; all nodes if None."""

    name: str
    devices: Mapping[str, OfferedDevice]
    node_selector: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """What this node offers: one driver, its own pool, and pools that it shares with other nodes."""

    driver: str
    pool: str
    devices: Mapping[str, OfferedDevice]
    network: tuple[NetworkPool, ...] = ()

    def offered(self, pool: str, device: str) -> OfferedDevice | None:
        if pool == self.pool:
            return self.devices.get(device)
        return next((each.devices.get(device) for each in self.network if each.name == pool), None)

    def all_devices(self) -> Mapping[tuple[str, str], OfferedDevice]:
        """All devices by pool and name. No name occurs twice."""
        pools = [(self.pool, self.devices), *((pool.name, pool.devices) for pool in self.network)]
        return {(pool, name): device for pool, devices in pools for name, device in devices.items()}

    def pool_of(self, device: str) -> str:
        """The pool of a device; this node's own for a device that is no longer in the file."""
        return next((pool.name for pool in self.network if device in pool.devices), self.pool)

    @classmethod
    def read(cls, path: str, node: str) -> Inventory:
        return cls.parse(path, _content(path), node)

    @classmethod
    def parse(cls, path: str, content: bytes, node: str) -> Inventory:
        """Check the rules of the API server and of CDI. SettingsError names `path`, the field and the rule."""
        try:
            document = json.loads(content)
            inventory = _inventory(document, node)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            missing = f"{error} is missing" if isinstance(error, KeyError) else error
            raise SettingsError(f"{path}: not a usable device file: {missing}") from error
        return inventory


class InventoryFile:
    """The device file. `current` is its last good content, `error` what is wrong with it now."""

    def __init__(self, path: str, node: str) -> None:
        self.path = path
        self.error = ""
        self._node = node
        self._seen: bytes | None = _content(path)
        self.current = Inventory.parse(path, self._seen, node)

    def refresh(self) -> bool:
        """Read the file again; True if it has a new inventory. An unusable file changes only `error`."""
        try:
            content = _content(self.path)
            if content == self._seen:
                return False
            self._seen = content
            found = Inventory.parse(self.path, content, self._node)
            if found.driver != self.current.driver:
                raise SettingsError(f"{self.path}: driver: a different driver needs a restart of the agent")
        except _Unreadable as error:
            self._seen = None
            self.error = str(error)
            return False
        except SettingsError as error:
            self.error = str(error)
            return False
        self.error = ""
        changed = found != self.current
        self.current = found
        return changed


class _Unreadable(SettingsError):
    pass


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise _Unreadable(f"{path}: the device file cannot be read: {error.strerror}") from error


def _inventory(document: Mapping[str, Any], node: str) -> Inventory:
    if not isinstance(document, dict):
        raise TypeError("it must be an object with a driver and a list of devices")
    _only("", document, ("driver", "pool", "devices", "network_pools"))
    _check("driver", grammar.driver, document["driver"])
    listed = document["devices"]
    pool = document.get("pool") or node
    _check("pool", grammar.pool, pool)
    own, network = _devices("devices", listed), _network_pools(document, pool)
    everything = [own, *(each.devices for each in network)]
    names = Counter(name for devices in everything for name in devices)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"network_pools: two devices are called {twice[0]!r}")
    _check_env(device for devices in everything for device in devices.values())
    return Inventory(document["driver"], pool, own, network)


def _devices(where: str, listed: object) -> dict[str, OfferedDevice]:
    if not isinstance(listed, list):
        raise TypeError(f"{where}: a list of devices")
    devices: dict[str, OfferedDevice] = {}
    for number, each in enumerate(listed):
        device = _device(f"{where}[{number}]", each)
        if device.name in devices:
            raise ValueError(f"{where}[{number}].name: two devices are called {device.name!r}")
        devices[device.name] = device
    return devices


def _network_pools(document: Mapping[str, Any], own: str) -> tuple[NetworkPool, ...]:
    pools: dict[str, NetworkPool] = {}
    listed = document.get("network_pools", [])
    if not isinstance(listed, list):
        raise TypeError("network_pools: a list")
    for number, each in enumerate(listed):
        where = f"network_pools[{number}]"
        if not isinstance(each, dict) or not each.keys() >= {"pool", "devices"}:
            raise TypeError(f"{where}: an object with a pool and devices")
        _only(f"{where}: ", each, ("pool", "devices", "all_nodes", "node_selector"))
        _check(f"{where}.pool", grammar.pool, each["pool"])
        if each["pool"] in (own, *pools):
            raise ValueError(f"{where}.pool: two pools are called {each['pool']!r}")
        if (each.get("all_nodes") is True) == ("node_selector" in each):
            raise ValueError(f"{where}: all_nodes, which is true, or a node_selector, and not both")
        selector = _node_selector(where, each) if "node_selector" in each else None
        pools[each["pool"]] = NetworkPool(each["pool"], _devices(f"{where}.devices", each["devices"]), selector)
    return tuple(pools.values())


def _node_selector(where: str, entry: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    where = f"{where}.node_selector"
    labels = entry["node_selector"]
    if not isinstance(labels, dict) or not labels:
        raise TypeError(f"{where}: an object with labels and their values")
    selector = {}
    for name, values in labels.items():
        selector[name] = tuple(values) if isinstance(values, list) else (values,)
        _check(where, grammar.label, name)
        if not selector[name]:
            raise ValueError(f"{where}: {name} has no value")
        for value in selector[name]:
            _check(f"{where}.{name}", grammar.label_value, value)
    return selector


def _check_env(devices: Iterable[OfferedDevice]) -> None:
    """A container may get any of these devices together, and then one value of a variable would hide another."""
    values: dict[str, tuple[str, str]] = {}
    for device in devices:
        for name, value in device.env.items():
            known, other = values.setdefault(name, (value, device.name))
            if known != value:
                raise ValueError(
                    f"env: {name} has one value for {other} and another for {device.name}, and a container with both "
                    "would see only one of them; use one name per device"
                )


def _device(where: str, entry: Mapping[str, Any]) -> OfferedDevice:
    if not isinstance(entry, dict) or "name" not in entry:
        raise TypeError(f"{where}: a device must be an object with a name")
    _only(f"{where}: ", entry, [each.name for each in fields(OfferedDevice)])
    _check(f"{where}.name", grammar.device, entry["name"])
    shared = entry.get("shared", False)
    _check(f"{where}.shared", _yes_or_no, shared)
    attributes, capacity = _object(where, entry, "attributes"), _object(where, entry, "capacity")
    if len(attributes) + len(capacity) > grammar.MAX_PROPERTIES:
        raise ValueError(f"{where}: more than {grammar.MAX_PROPERTIES} attributes and capacities")
    for name, value in attributes.items():
        _check(f"{where}.attributes", grammar.qualified_name, name)
        _check(f"{where}.attributes.{name}", grammar.attribute, value)
    for name, value in capacity.items():
        _check(f"{where}.capacity", grammar.qualified_name, name)
        _check(f"{where}.capacity.{name}", lambda given: grammar.capacity(given, shared=shared), value)
    env = _object(where, entry, "env")
    for name, value in env.items():
        _check(f"{where}.env", lambda given, name=name: grammar.environment(name, given), value)  # type: ignore[misc]
    nodes = entry.get("device_nodes", [])
    if not isinstance(nodes, list):
        raise TypeError(f"{where}.device_nodes: a list of paths")
    for path in nodes:
        _check(f"{where}.device_nodes", grammar.device_node, path)
    taints = entry.get("taints", [])
    if not isinstance(taints, list) or len(taints) > grammar.MAX_TAINTS:
        raise ValueError(f"{where}.taints: a list of at most {grammar.MAX_TAINTS}")
    for taint in taints:
        _check(f"{where}.taints", grammar.taint, taint)
    variables = {name: str(value) for name, value in env.items()}
    return OfferedDevice(entry["name"], shared, attributes, capacity, variables, tuple(nodes), tuple(taints))


def _only(where: str, entry: Mapping[str, Any], members: Iterable[str]) -> None:
    """A typo, or a field of a ResourceSlice that is not supported here, must not be ignored silently."""
    for member in entry:
        if member not in members:
            raise ValueError(f"{where}there is no {member[:63]!r} here, only {', '.join(members)}")


def _object(where: str, entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = entry.get(name, {})
    if not isinstance(found, dict):
        raise TypeError(f"{where}.{name}: an object")
    return found


def _yes_or_no(value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError("true or false")


def _check(where: str, rule: Callable[[Any], None], value: object) -> None:
    try:
        rule(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
