"""What kubelet sees of a driver: two calls, each for many claims, with one result per claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ._claims.state import Device


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """Everything that a driver learns about a claim. Name and namespace are empty if only the UID is known."""

    uid: str
    name: str
    namespace: str

    def __str__(self) -> str:
        """For messages."""
        return f"claim {self.namespace}/{self.name} (UID {self.uid})"


@dataclass(frozen=True, slots=True)
class PrepareResult:
    """A driver's answer for one claim: its devices, or an error."""

    devices: tuple[Device, ...] = ()
    error: str = ""  # "" for success


class DRAPlugin(Protocol):
    """A driver, as kubelet sees it. Both calls must be idempotent: restarts, reboots and failures repeat them.

    A claim without an entry in the answer has failed. If a call raises, all its claims have failed.
    """

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """Return the answers by claim UID. For a claim that is already prepared, answer with the same devices."""
        ...

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str | None]:
        """Return the error by claim UID, "" or None for success. A claim that the driver does not know succeeds."""
        ...


def error_in(answer: object) -> str:
    """The error in an answer, "" if there is none. A driver is foreign code, so the answer is checked first."""
    if not isinstance(answer, PrepareResult):
        return not_a(PrepareResult, answer)
    if not isinstance(answer.error, str):
        return not_a(str, answer.error)
    if not isinstance(answer.devices, Sequence):
        return not_a(Sequence, answer.devices)
    strangers = [device for device in answer.devices if not isinstance(device, Device)]
    return not_a(Device, strangers[0]) if strangers else answer.error


def not_a(expected: type, answer: object) -> str:
    return f"the driver answered {type(answer).__name__} where {expected.__name__} is expected"
