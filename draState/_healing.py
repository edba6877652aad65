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
    part: DriverState | None, trace: DriverState | None, shown: DriverState | None, found: DriverClaim
) -> tuple[DriverClaim, ClaimPhase | None]:
    """The claim and its phase to write. Raises NotHealed.

    `part` is what is left of the record, such as its previous generation, `trace` what the node shows, and `shown`
    what the damaged bytes still name. None proves that the set-up is complete, so the claim has no phase: it holds its
    devices, and is set up again before the next answer. Data in damaged bytes may be another claim's: it is not used.
    """
    evidence = [each for each in (trace, part, shown) if each and each.devices]
    if not evidence:
        raise NotHealed("nothing shows which devices it was set up with")
    for each in evidence:
        if _identities(each.devices) != _identities(found.devices):
            raise NotHealed("the API server gives it other devices than it was set up with")
    told = next((each for each in evidence if each is trace or _has_all(each, certain=each is part)), None)
    if told is None:
        raise NotHealed("what its set-up returned is not certain")
    ids = {device.identity: device.cdi_device_ids for device in told.devices}
    devices = tuple(replace(device, cdi_device_ids=ids[device.identity]) for device in found.devices)
    unpreparing = any(each and each.phase is ClaimPhase.UNPREPARING for each in (part, shown))
    phase = ClaimPhase.UNPREPARING if unpreparing else None
    return replace(found, devices=devices, driver_data=told.driver_data), phase


def _has_all(record: DriverState, *, certain: bool) -> bool:
    """True if set_up had returned; what it returned counts only in a record that is whole."""
    done = record.phase in (ClaimPhase.PREPARED, ClaimPhase.UNPREPARING)
    return done and (certain or record.driver_data is None)


def _identities(devices: Iterable[Device]) -> set[tuple[str, str, str | None]]:
    return {device.identity for device in devices}
