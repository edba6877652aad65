"""Which record of a damaged or lost claim can be written anew, from evidence that agrees with the API server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ._claimstate import ClaimPhase, Device, DriverState
from ._driverclaim import DriverClaim
from ._errors import DRAError


class NotHealed(DRAError):
    """The record stays unknown. The message says why."""


def healed(
    part: DriverState | None, trace: DriverState | None, found: DriverClaim
) -> tuple[DriverClaim, ClaimPhase | None]:
    """The claim and its phase to write. Raises NotHealed.

    `part` is what is left of the record, such as its previous generation, and `trace` what the node shows. Neither
    proves that the set-up is complete, so the claim has no phase: it holds its devices, and is set up again before
    the next answer.
    """
    evidence = [each for each in (trace, part) if each and each.devices]
    if not evidence:
        raise NotHealed("nothing shows which devices it was set up with")
    for each in evidence:
        if _identities(each.devices) != _identities(found.devices):
            raise NotHealed("the API server gives it other devices than it was set up with")
    told = evidence[0]
    if told is part and part.phase not in (ClaimPhase.PREPARED, ClaimPhase.UNPREPARING):
        raise NotHealed("what its set-up returned is not legible")
    ids = {device.identity: device.cdi_device_ids for device in told.devices}
    devices = tuple(replace(device, cdi_device_ids=ids[device.identity]) for device in found.devices)
    phase = ClaimPhase.UNPREPARING if part and part.phase is ClaimPhase.UNPREPARING else None
    return replace(found, devices=devices, driver_data=told.driver_data), phase


def _identities(devices: Iterable[Device]) -> set[tuple[str, str, str | None]]:
    return {device.identity for device in devices}
