"""The devices of this node, from a JSON file that the operator writes and may change while the agent runs:

{"driver": "gpu.example.com",
 "pool": "",                                              the node's name if empty or missing
 "devices": [{"name": "gpu-0",
              "shared": false,                            true: several claims at once, each with its share id
              "attributes": {"model": {"string": "a"}},   as in a ResourceSlice, for the scheduler
              "capacity": {"memory": {"value": "16Gi"}},
              "env": {"GPU_0": "yes"},                    what the container gets; one name, one value
              "device_nodes": ["/dev/null"]}]}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import grammar


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

    def all_devices(self) -> Iterator[tuple[tuple[str, str], OfferedDevice]]:
        """Each with its pool and name."""
        for device in self.devices.values():
            yield (self.pool, device.name), device

    @classmethod
    def read(cls, path: str, node: str) -> Inventory:
        return cls.parse(path, _content(path), node)

    @classmethod
    def parse(cls, path: str, content: bytes, node: str) -> Inventory:
        """Checked against the rules of the API server and of CDI; SettingsError names `path`, the field, the rule."""
        try:
            told = json.loads(content)
            inventory = _inventory(told, node)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            missing = f"{error} is missing" if isinstance(error, KeyError) else error
            raise SettingsError(f"{path}: not a usable device file: {missing}") from error
        return inventory


class InventoryFile:
    """The device file. `current` is what it said when it was last good, `error` what is wrong with it now."""

    def __init__(self, path: str, node: str) -> None:
        self.path = path
        self.error = ""
        self._node = node
        self._seen: bytes | None = _content(path)
        self.current = Inventory.parse(path, self._seen, node)

    def refresh(self) -> bool:
        """Read the file again; True if it has a new inventory. One that cannot be used changes only `error`."""
        try:
            content = _content(self.path)
            if content == self._seen:
                return False
            self._seen = content
            found = Inventory.parse(self.path, content, self._node)
            if found.driver != self.current.driver:
                raise SettingsError(f"{self.path}: driver: another one needs a restart of the agent")
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


def _inventory(told: Mapping[str, Any], node: str) -> Inventory:
    if not isinstance(told, dict) or not isinstance(told["devices"], list):
        raise TypeError("it is an object with a driver and a list of devices")
    _check("driver", grammar.driver, told["driver"])
    pool = told.get("pool") or node
    _check("pool", grammar.pool, pool)
    devices: dict[str, OfferedDevice] = {}
    for number, each in enumerate(told["devices"]):
        device = _device(f"devices[{number}]", each)
        if device.name in devices:
            raise ValueError(f"devices[{number}].name: two devices are called {device.name!r}")
        devices[device.name] = device
    _check_env(devices.values())
    return Inventory(told["driver"], pool, devices)


def _check_env(devices: Iterable[OfferedDevice]) -> None:
    """A container may get any of them together, and then one value of a variable would hide the other."""
    values: dict[str, tuple[str, str]] = {}
    for device in devices:
        for name, value in device.env.items():
            known, other = values.setdefault(name, (value, device.name))
            if known != value:
                raise ValueError(
                    f"env: {name} has one value for {other} and another for {device.name}, and a container with both "
                    "would see only one of them; use one name per device"
                )


def _device(where: str, told: Mapping[str, Any]) -> OfferedDevice:
    if not isinstance(told, dict) or "name" not in told:
        raise TypeError(f"{where}: a device is an object with a name")
    _check(f"{where}.name", grammar.device, told["name"])
    shared = told.get("shared", False)
    _check(f"{where}.shared", _yes_or_no, shared)
    attributes, capacity = _object(where, told, "attributes"), _object(where, told, "capacity")
    if len(attributes) + len(capacity) > grammar.MAX_PROPERTIES:
        raise ValueError(f"{where}: more than {grammar.MAX_PROPERTIES} attributes and capacities")
    for name, value in attributes.items():
        _check(f"{where}.attributes", grammar.qualified_name, name)
        _check(f"{where}.attributes.{name}", grammar.attribute, value)
    for name, value in capacity.items():
        _check(f"{where}.capacity", grammar.qualified_name, name)
        _check(f"{where}.capacity.{name}", lambda given: grammar.capacity(given, shared=shared), value)
    env = _object(where, told, "env")
    for name, value in env.items():
        _check(f"{where}.env", lambda given, name=name: grammar.environment(name, given), value)  # type: ignore[misc]
    nodes = told.get("device_nodes", [])
    if not isinstance(nodes, list):
        raise TypeError(f"{where}.device_nodes: a list of paths")
    for path in nodes:
        _check(f"{where}.device_nodes", grammar.device_node, path)
    return OfferedDevice(
        told["name"], shared, attributes, capacity, {name: str(value) for name, value in env.items()}, tuple(nodes)
    )


def _object(where: str, told: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = told.get(name, {})
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
