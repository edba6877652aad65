"""The driver of dra-agent: it offers the devices of the device file, and adds what the configs of a claim ask for.

The opaque config of a claim, or of its class, may say:

    {"env": {"GPU_MODE": "fast"}, "annotations": {"example.com/mode": "fast"}}

Both members are optional, and there are no others: an unknown member is refused, because its author expects it to have
an effect. Errors contain at most the name of a member, never its content.
"""

from __future__ import annotations

from collections.abc import Sequence

from draState import ClaimInvalid
from draState.plugin import (
    Counters,
    Device,
    Driver,
    DriverClaim,
    NetworkPool,
    PreparedDevice,
    SettingsError,
    check_edits,
)

from .inventory import parse, read_file

READY = {"conditions": [{"type": "Ready"}]}
MEMBERS = ("env", "annotations")
SHOWN = 63  # characters of a member's name in an error


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
        for config in claim.configs:
            try:
                _check(config.parameters)
            except ValueError as error:
                source = "class" if config.from_class else "claim"
                where = f"claim {claim.namespace}/{claim.name} (UID {claim.uid})"
                raise ClaimInvalid(f"{where}: the config from its {source}: {error}") from None

    def set_up(self, claim: DriverClaim) -> list[PreparedDevice]:
        prepared = []
        for device in claim.devices:
            configs = claim.configs_of(device)
            asked: dict[str, dict[str, str]] = {member: {} for member in MEMBERS}
            for config in configs:  # later ones win, name by name: the claim's come after its class's
                for member, values in asked.items():
                    values.update(config.parameters.get(member) or {})
            kept = asked if configs else None
            given = PreparedDevice(device, asked["env"], annotations=asked["annotations"], config=kept, status=READY)
            prepared.append(given)
        return prepared

    def tear_down(self, claim: DriverClaim) -> None:
        """There is nothing beside the CDI file."""


def _check(parameters: object) -> None:
    if not isinstance(parameters, dict):
        raise ValueError(f"the parameters must be an object with {' and '.join(MEMBERS)}")
    for member in parameters:
        if member not in MEMBERS:
            raise ValueError(f"there is no {member[:SHOWN]!r} in parameters, only {' and '.join(MEMBERS)}")
    for member in MEMBERS:
        values = parameters.get(member) or {}
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise ValueError(f"{member} must be an object whose values are strings")
    check_edits(parameters.get("env") or {}, parameters.get("annotations") or {})
