"""What the manager asks of a driver: two calls, each for many claims, each claim with its own result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ._claimstate import Device
from ._errors import DRAError


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """All that a driver is told about a claim. Name and namespace are empty when only the UID is known."""

    uid: str
    name: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A driver's answer for one claim: its devices, or why there are none."""

    devices: tuple[Device, ...] = ()
    error: str = ""  # "" for success


class Driver(Protocol):
    """Both calls must be idempotent: they are repeated after a restart, a reboot and a failure.

    A claim without an entry in the answer has failed. What a call raises is the failure of all its claims.
    """

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Prepared]:
        """By claim UID. A claim that is prepared already answers with the same devices."""
        ...

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """By claim UID the error, "" for success. A claim that the driver does not know succeeds."""
        ...


def error_in(answer: object) -> str:
    """Why a claim is not prepared, "" if it is. A driver is foreign code, so its answer is looked at first."""
    if not isinstance(answer, Prepared):
        return not_a(Prepared, answer)
    if not isinstance(answer.error, str):
        return not_a(str, answer.error)
    if not isinstance(answer.devices, Sequence):
        return not_a(Sequence, answer.devices)
    strangers = [device for device in answer.devices if not isinstance(device, Device)]
    return not_a(Device, strangers[0]) if strangers else answer.error


def not_a(expected: type, answer: object) -> str:
    return f"the driver answered {type(answer).__name__} where {expected.__name__} is expected"


class _NotRegistered:
    """Stands where a driver is not there, or not any more: each of its claims fails."""

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Prepared]:
        raise DRAError("the driver is not registered on this node")

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        raise DRAError("the driver is not registered on this node")


NOT_REGISTERED: Driver = _NotRegistered()
