"""What a driver offers on this node, checked against the rules of the API server and of CDI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _grammar as grammar

Counters = Mapping[str, Mapping[str, Any]]  # sets of counters by name: a quantity per counter


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a driver offers. Every container that gets it gets its `env` and its `device_nodes`.

    The value of an attribute is a str, int or bool, a list of these, or the API server's form, such as
    {"version": "1.2.3"}; a capacity is a quantity, such as "16Gi", or the API server's form.
    """

    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)  # for the scheduler
    capacity: Mapping[str, Any] = field(default_factory=dict)
    shared: bool = False  # several claims at once, each with its share id
    taints: tuple[Mapping[str, str], ...] = ()  # {"key": …, "value": …, "effect": …}
    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[str, ...] = ()  # on the host; without one of them the device is unhealthy
    consumes_counters: Counters = field(default_factory=dict)  # what it takes from which of the pool's shared counters


@dataclass(frozen=True, slots=True)
class NetworkPool:
    """Devices that several nodes reach."""

    name: str
    devices: tuple[Device, ...]
    node_selector: Mapping[str, tuple[str, ...]] | None = None  # one of the values of each label; None for all nodes


@dataclass(frozen=True, slots=True)
class Inventory:
    """What one driver offers: the pool of this node, and pools that it shares with other nodes."""

    driver: str
    pool: str
    devices: tuple[Device, ...]
    network: tuple[NetworkPool, ...] = ()  # devices that belong to no single node
    shared_counters: Counters = field(default_factory=dict)  # of this node's pool

    def offered(self, pool: str, device: str) -> Device | None:
        """One device, if it is offered."""
        return self.all_devices().get((pool, device))

    def all_devices(self) -> Mapping[tuple[str, str], Device]:
        """All devices by pool and name. No name occurs twice."""
        pools = [(self.pool, self.devices), *((pool.name, pool.devices) for pool in self.network)]
        return {(pool, device.name): device for pool, devices in pools for device in devices}

    def pool_of(self, device: str) -> str:
        """The pool of a device; this node's own for a device that is no longer offered."""
        return next((pool for pool, name in self.all_devices() if name == device), self.pool)

    def check(self) -> None:
        """Raises ValueError with the field and the rule that it breaks."""
        _check("driver", grammar.driver, self.driver)
        _check("pool", grammar.pool, self.pool)
        _check_devices("devices", self.devices)
        _check_counters("shared_counters", self.shared_counters)
        for (where, name), each in self.all_devices().items():
            known = self.shared_counters if where == self.pool else {}
            if strange := each.consumes_counters.keys() - known.keys():
                raise ValueError(f"{name}: there are no shared_counters called {min(strange)!r} in pool {where}")
        names = [self.pool]
        for number, pool in enumerate(self.network):
            where = f"network_pools[{number}]"
            _check(f"{where}.pool", grammar.pool, pool.name)
            if pool.name in names:
                raise ValueError(f"{where}.pool: two pools are called {pool.name!r}")
            names.append(pool.name)
            _check_selector(f"{where}.node_selector", pool.node_selector)
            _check_devices(f"{where}.devices", pool.devices)
        everything = [*self.devices, *(device for pool in self.network for device in pool.devices)]
        if twice := [name for name, count in Counter(device.name for device in everything).items() if count > 1]:
            raise ValueError(f"network_pools: two devices are called {twice[0]!r}")
        _check_env(everything)


def _check_devices(where: str, devices: Iterable[Device]) -> None:
    names: set[str] = set()
    for number, device in enumerate(devices):
        _check_device(f"{where}[{number}]", device)
        if device.name in names:
            raise ValueError(f"{where}[{number}].name: two devices are called {device.name!r}")
        names.add(device.name)


def _check_device(where: str, device: Device) -> None:
    _check(f"{where}.name", grammar.device, device.name)
    for name, (kind, said) in _TYPES.items():
        if not isinstance(getattr(device, name), kind):
            raise ValueError(f"{where}.{name}: {said}")
    if len(device.attributes) + len(device.capacity) > grammar.MAX_PROPERTIES:
        raise ValueError(f"{where}: more than {grammar.MAX_PROPERTIES} attributes and capacities")
    for name, value in device.attributes.items():
        _check(f"{where}.attributes", grammar.qualified_name, name)
        _check(f"{where}.attributes.{name}", grammar.attribute, grammar.attribute_form(value))
    for name, value in device.capacity.items():
        _check(f"{where}.capacity", grammar.qualified_name, name)
        _check(f"{where}.capacity.{name}", grammar.capacity, grammar.capacity_form(value), device.shared)
    for name, value in device.env.items():
        _check(f"{where}.env", grammar.environment, name, value)
    for path in device.device_nodes:
        _check(f"{where}.device_nodes", grammar.device_node, path)
    if len(device.taints) > grammar.MAX_TAINTS:
        raise ValueError(f"{where}.taints: a list of at most {grammar.MAX_TAINTS}")
    for taint in device.taints:
        _check(f"{where}.taints", grammar.taint, taint)
    _check_counters(f"{where}.consumes_counters", device.consumes_counters)
    if len(device.consumes_counters) > grammar.MAX_COUNTER_SETS_OF_DEVICE:
        raise ValueError(f"{where}.consumes_counters: at most {grammar.MAX_COUNTER_SETS_OF_DEVICE} sets")


_TYPES: Mapping[str, tuple[Any, str]] = {
    "shared": (bool, "true or false"),
    "attributes": (Mapping, "an object"),
    "capacity": (Mapping, "an object"),
    "env": (Mapping, "an object"),
    "device_nodes": ((list, tuple), "a list"),
    "taints": ((list, tuple), "a list"),
}


def _check_counters(where: str, sets: Counters) -> None:
    if not isinstance(sets, Mapping) or not all(isinstance(counters, Mapping) for counters in sets.values()):
        raise ValueError(f"{where}: sets of counters by name, each with a quantity per counter")
    for name, counters in sets.items():
        _check(where, grammar.device, name)
        if not 0 < len(counters) <= grammar.MAX_COUNTERS:
            raise ValueError(f"{where}.{name}: at least one counter, and at most {grammar.MAX_COUNTERS}")
        for counter, amount in counters.items():
            _check(f"{where}.{name}", grammar.device, counter)
            _check(f"{where}.{name}.{counter}", grammar.quantity, amount)


def _check_selector(where: str, labels: Mapping[str, tuple[str, ...]] | None) -> None:
    if labels is not None and not labels:
        raise ValueError(f"{where}: an object with labels and their values")
    for name, values in (labels or {}).items():
        _check(where, grammar.label, name)
        if not values:
            raise ValueError(f"{where}: {name} has no value")
        for value in values:
            _check(f"{where}.{name}", grammar.label_value, value)


def _check_env(devices: Iterable[Device]) -> None:
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


def _check(where: str, rule: Callable[..., None], *values: object) -> None:
    try:
        rule(*values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
