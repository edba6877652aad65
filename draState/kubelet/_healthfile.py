"""Reads kubelet's own file of device health, `dra_health_state`: JSON without a checksum, decoded as in Go.

If kubelet cannot read the file, it logs that and starts with what it has decoded so far, usually nothing. Such a file
is refused here. Some files load and then crash kubelet at the next report, because they leave it with a nil map.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from .._errors import KubeletStateInvalid
from .._health.device import DEFAULT_TIMEOUT, DeviceName, Health
from ._gotypes import (
    INT,
    STRING,
    Decoded,
    Field,
    GoType,
    Integer,
    JsonPath,
    Map,
    String,
    Struct,
    UnmarshalError,
    Value,
    decode,
    spelled,
)
from ._syntax import Escaped, Node, NotJSONError, parse

FILE = "dra_health_state"
NANOSECONDS = 1_000_000_000
_NEVER = datetime.min.replace(tzinfo=UTC)  # Go's zero time


@dataclass(frozen=True, slots=True)
class KubeletDeviceHealth:
    """One device in kubelet's file. Kubelet considers it unknown `timeout` seconds after `last_updated`."""

    pool_name: str
    device_name: str
    health: Health
    message: str = field(repr=False)  # why, for people
    timeout: float
    last_updated: datetime


@dataclass(frozen=True, slots=True)
class KubeletHealthState:
    """The content of a file, by driver. `warnings` are about things that kubelet accepts, or fails on only later."""

    drivers: Mapping[str, tuple[KubeletDeviceHealth, ...]]  # the devices of each driver
    warnings: tuple[str, ...] = ()


def read_dra_health_state(blob: bytes) -> KubeletHealthState:
    """Read the file's bytes. Raises KubeletStateInvalid if kubelet would log that it cannot load them."""
    try:
        document = parse(blob)
    except NotJSONError as error:
        raise KubeletStateInvalid(f"the file is not JSON ({error if blob else 'it is empty'})", FILE) from None
    decoded = decode(STATE, document, {})
    if decoded.problems:
        raise KubeletStateInvalid(decoded.problems[0], FILE)
    drivers: Mapping[str, Value] = decoded.value or {}
    found = {driver: state["Devices"] or {} for driver, state in drivers.items()}
    read = {driver: tuple(_devices(devices)) for driver, devices in found.items()}
    return KubeletHealthState(read, (*_about_nil(decoded), *_about_names(found.values()), *_about_fields(decoded)))


def _devices(devices: Mapping[str, Value]) -> Iterator[KubeletDeviceHealth]:
    for key, device in devices.items():
        if name := _name(key):
            timeout = device["HealthCheckTimeout"] / NANOSECONDS or DEFAULT_TIMEOUT
            health = Health.named(device["Health"])
            yield KubeletDeviceHealth(*name, health, device["Message"], timeout, device["LastUpdated"])


def _name(key: str) -> DeviceName | None:
    """Kubelet looks up a device by this key, whatever else the entry says. A pool's name may contain slashes."""
    pool, slash, device = key.rpartition("/")
    return (pool, device) if slash else None


def _about_nil(decoded: Decoded) -> Iterable[str]:
    if decoded.value is None:
        yield "the file is null: kubelet loads it and crashes at the first report of any driver"
        return
    nil = sum(state["Devices"] is None for state in decoded.value.values())
    if nil:
        yield f"{nil} drivers have no Devices: kubelet loads them and crashes when one of them reports a device"


def _about_names(drivers: Iterable[Mapping[str, Value]]) -> Iterable[str]:
    entries = [entry for devices in drivers for entry in devices.items()]
    devices = [(_name(key), (device["PoolName"], device["DeviceName"])) for key, device in entries]
    lost = sum(name is None for name, _ in devices)
    if lost:
        yield f"{lost} devices left out: their key is not pool/device, so kubelet never finds them"
    differing = sum(name is not None and name != said for name, said in devices)
    if differing:
        yield f"{differing} devices have a name that differs from their key; the key counts"


def _about_fields(decoded: Decoded) -> Iterable[str]:
    unknown = {name for _, name in decoded.unknown}  # only counted, because names may be data
    if unknown:
        yield f"{len(unknown)} unknown fields are left out"
    if decoded.repeated:
        yield f"{len(decoded.repeated)} fields or keys occur more than once; the last one counts"


# As Go parses RFC 3339: an hour may have one digit, and a comma may replace the point.
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)


class _Time(GoType):
    """time.Time, in UTC and with microseconds."""

    name = "time.Time"

    def decode(self, node: Node, old: Value, path: JsonPath, notes: Decoded) -> Value:
        if node is None:
            return old
        found = _TIME.fullmatch(node) if isinstance(node, str) and not isinstance(node, Escaped) else None
        with suppress(ValueError):
            if found:
                return _utc(found)
        notes.problems.append(f"{spelled(path)} is not an RFC 3339 time")
        raise UnmarshalError

    def zero(self) -> Value:
        return _NEVER


def _utc(found: re.Match[str]) -> datetime:
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    fraction, sign, hours, minutes = found.groups()[6:]
    # Go has a year 0, Python does not; it is a leap year like 4.
    at = datetime(year or 4, month, day, hour, minute, second, int((fraction or "0")[:6].ljust(6, "0")), tzinfo=UTC)
    if sign and (int(hours) > 24 or int(minutes) > 60):
        raise ValueError
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    if not year:
        return _NEVER
    try:
        return at + offset if sign == "-" else at - offset
    except OverflowError:
        return at


_DEVICE = Struct(
    "state.DeviceHealth",
    (
        Field("PoolName", STRING),
        Field("DeviceName", STRING),
        Field("Health", String("state.DeviceHealthStatus")),
        Field("LastUpdated", _Time()),
        Field("HealthCheckTimeout", Integer("time.Duration", INT.lowest, INT.highest)),
        Field("Message", STRING),
    ),
)
_DRIVER = Struct("state.DriverHealthState", (Field("Devices", Map("map[string]state.DeviceHealth", _DEVICE)),))
STATE = Map("state.DevicesHealthMap", _DRIVER)
