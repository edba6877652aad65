"""The device health that a driver reports, as it is persisted.

These classes are exactly what the files contain. tests/data/draState/devicehealth-baseline.json freezes them: a
change of shape needs a new version here. They do not preserve the fields of newer versions: such a field describes
the last report and may be wrong for the next.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum

from checkpointmanager import Schema, SharedText

DEFAULT_TIMEOUT = 30.0  # seconds, as in kubelet
LONGEST_MESSAGE = 1024  # characters, as the API server allows
CUT = "..."
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

DeviceName = tuple[str, str]  # pool and device


class Health(StrEnum):
    """The health of a device, with kubelet's names."""

    HEALTHY = "Healthy"  # works
    UNHEALTHY = "Unhealthy"  # does not work
    UNKNOWN = "Unknown"  # not reported, or the report has timed out

    @classmethod
    def named(cls, word: str) -> Health:
        """The member with this name; UNKNOWN for any other name."""
        return cls(word) if word in {*cls} else cls.UNKNOWN

    @classmethod
    def numbered(cls, number: int) -> Health:
        """The member with this number in the gRPC messages of drivers; UNKNOWN for any other number."""
        return {1: cls.HEALTHY, 2: cls.UNHEALTHY}.get(number, cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """One device in a driver's report. The receiver sets `reported`.

    A report counts for `timeout` seconds; zero or less means the default. After that the health is unknown.
    """

    pool_name: SharedText
    device_name: SharedText
    health: Health = Health.UNKNOWN
    message: str = field(default="", repr=False)  # why, for people
    timeout: float = DEFAULT_TIMEOUT
    reported: float = 0.0  # when it arrived, in seconds since the node booted

    @property
    def name(self) -> DeviceName:
        """(pool, device)."""
        return self.pool_name, self.device_name

    @property
    def is_known(self) -> bool:
        """False if it looks like a device that was never reported."""
        return self.health is not Health.UNKNOWN or self.message != ""

    def arrived(self, now: float) -> DeviceHealth:
        """The report as the store keeps it: with its time, a message cut to size and a valid time-out."""
        cut = self.message[: LONGEST_MESSAGE - len(CUT)] + CUT if len(self.message) > LONGEST_MESSAGE else self.message
        timeout = self.timeout if 0 < self.timeout < math.inf else DEFAULT_TIMEOUT
        return replace(self, message=cut, timeout=float(timeout), reported=now)

    def is_over(self, now: float) -> bool:
        """True if its time-out is over, or if its time is in the future, and so from another clock."""
        return not 0 <= now - self.reported <= self.timeout

    def says_the_same_as(self, other: DeviceHealth) -> bool:
        """True if two reports of one device agree, apart from their times."""
        return (self.health, self.message, self.timeout) == (other.health, other.message, other.timeout)


@dataclass(frozen=True, slots=True)
class DriverHealth:
    """The persisted state of a driver: its devices."""

    devices: tuple[DeviceHealth, ...] = ()


DEVICE_HEALTH: Schema[DriverHealth] = Schema("DeviceHealth", version=1, type=DriverHealth)
"""The schema of the files of a DeviceHealthStore."""


def seconds_since_boot() -> float:
    """A clock that runs while the node sleeps, never jumps, and is shared by all processes of this boot."""
    return time.clock_gettime(_CLOCK)
