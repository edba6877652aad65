"""What a driver reports about the health of its devices, and what is persisted of that.

These classes are what the files hold, no more. They are frozen in tests/data/draState/devicehealth-baseline.json:
a change of shape needs a new version here. They carry no fields of newer versions along: what such a field said
about the last report need not be true of the next.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum

from checkpointmanager import Schema, SharedText

DEFAULT_TIMEOUT = 30.0  # seconds, kubelet's
LONGEST_MESSAGE = 1024  # characters, as the API server allows
CUT = "..."
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

DeviceName = tuple[str, str]  # pool and device


class Health(StrEnum):
    """In kubelet's words."""

    HEALTHY = "Healthy"  # works
    UNHEALTHY = "Unhealthy"  # does not work
    UNKNOWN = "Unknown"  # not reported, or the report has timed out

    @classmethod
    def named(cls, word: str) -> Health:
        """By its word; any other one is unknown."""
        return cls(word) if word in {*cls} else cls.UNKNOWN

    @classmethod
    def numbered(cls, number: int) -> Health:
        """By its number in the gRPC messages of drivers; any other one is unknown."""
        return {1: cls.HEALTHY, 2: cls.UNHEALTHY}.get(number, cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """One device in a driver's report. `reported` is set by who receives it.

    A report counts for `timeout` seconds; zero or less stands for the default. Then nothing is known.
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
        """False if it reads as a device that nobody has reported."""
        return self.health is not Health.UNKNOWN or self.message != ""

    def arrived(self, now: float) -> DeviceHealth:
        """As it is kept."""
        cut = self.message[: LONGEST_MESSAGE - len(CUT)] + CUT if len(self.message) > LONGEST_MESSAGE else self.message
        timeout = self.timeout if 0 < self.timeout < math.inf else DEFAULT_TIMEOUT
        return replace(self, message=cut, timeout=float(timeout), reported=now)

    def is_over(self, now: float) -> bool:
        """Its time-out is over. So is what was reported in the future: that was another clock."""
        return not 0 <= now - self.reported <= self.timeout

    def says_the_same_as(self, other: DeviceHealth) -> bool:
        """Of the same device, whenever that was said."""
        return (self.health, self.message, self.timeout) == (other.health, other.message, other.timeout)


@dataclass(frozen=True, slots=True)
class DriverHealth:
    """What is persisted of a driver: its devices."""

    devices: tuple[DeviceHealth, ...] = ()


DEVICE_HEALTH: Schema[DriverHealth] = Schema("DeviceHealth", version=1, type=DriverHealth)
"""The schema of the files of a DeviceHealthStore."""


def seconds_since_boot() -> float:
    """Goes on while the node sleeps, never jumps, and is the same for the next process of this boot."""
    return time.clock_gettime(_CLOCK)
