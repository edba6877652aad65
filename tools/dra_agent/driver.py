"""The driver of dra-agent: it offers the devices of the device file, and adds what the configs of a claim ask for."""

from __future__ import annotations

from collections.abc import Sequence

from draState.plugin import (
    Condition,
    Counters,
    Device,
    DeviceStatus,
    Driver,
    DriverClaim,
    NetworkPool,
    PreparedDevice,
    SettingsError,
)

from .inventory import parse, read_file
from .parameters import Parameters, check_parameters

READY = DeviceStatus((Condition("Ready"),))


class FileDriver(Driver):
    """The device file is read again when it changes."""

    def __init__(self, path: str, node: str, name: str = "") -> None:
        self._path = path
        self._node = node
        self._given = name
        self._content = read_file(path)
        self._inventory = parse(path, self._content, node, name)
        self.name = self._inventory.driver
        self.pool = self._inventory.pool

    def devices(self) -> Sequence[Device]:
        content = read_file(self._path)
        if content != self._content:
            found = parse(self._path, content, self._node, self._given)
            if found.driver != self.name:
                raise SettingsError(f"{self._path}: driver: a different driver needs a restart of the agent")
            self._content, self._inventory, self.pool = content, found, found.pool
        return self._inventory.devices

    def network_pools(self) -> Sequence[NetworkPool]:
        return self._inventory.network

    def shared_counters(self) -> Counters:
        return self._inventory.shared_counters

    def check(self, claim: DriverClaim) -> None:
        check_parameters(claim)

    def set_up(self, claim: DriverClaim) -> list[PreparedDevice]:
        prepared = []
        for device in claim.devices:
            configs = claim.configs_of(device)
            asked = Parameters.merged(configs)
            kept = asked.as_dict() if configs else None
            prepared.append(PreparedDevice(device, asked.env, annotations=asked.annotations, config=kept, status=READY))
        return prepared

    def tear_down(self, claim: DriverClaim) -> None:
        """There is nothing beside the CDI file."""
