"""One driver's part of the claims in a cache. Other drivers of the process may have parts of the same claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from checkpointmanager import KeyLocks

from ._claimcache import ClaimInfoCache
from ._claiminfo import ClaimInfo
from ._claimstate import ClaimInfoState, ClaimPhase, Device
from ._driverclaim import DriverClaim
from ._driverhooks import DriverHooks
from ._errors import DeviceHeld


class DriverRecords:
    """Reads and writes this driver's part and leaves all others as they are. Safe for many threads."""

    def __init__(self, cache: ClaimInfoCache, hooks: DriverHooks) -> None:
        self.cache = cache
        self.driver = hooks.driver
        self._same_device = hooks.same_device
        self._devices = KeyLocks()  # by name: two claims for one device must not both find it free

    def __iter__(self) -> Iterator[ClaimInfo]:
        """The claims that this driver has, or because of damage may have, a part in."""
        return filter(self._concerns, self.cache)

    def get(self, uid: str) -> ClaimInfo | None:
        """One of these claims."""
        claim = self.cache.get(uid)
        return claim if claim and self._concerns(claim) else None

    def view(self, claim: ClaimInfo) -> DriverClaim:
        return DriverClaim.remembered(claim, self.driver)

    def held(self, claim: ClaimInfo) -> DriverClaim:
        """The view for those who choose for another claim: with what only damaged bytes name."""
        held = claim.held(self.driver)
        return replace(self.view(claim), devices=held.devices, driver_data=held.driver_data).copy()

    def phase(self, claim: ClaimInfo) -> ClaimPhase | None:
        did = claim.state.driver_states.get(self.driver)
        return did.phase if did else None

    def hold(self, claim: DriverClaim, phase: ClaimPhase | None = ClaimPhase.PREPARING) -> None:
        """Record that the claim holds its devices: from here on it does, whatever happens. Raises DeviceHeld."""
        with self._devices.locked(*{device.device_name for device in claim.devices}):
            for device in claim.devices:
                self._refuse_if_held(claim, device)
            self.write(claim, phase)

    def write(self, claim: DriverClaim, phase: ClaimPhase | None) -> None:
        """Does not write if the disk already has this state, from this boot."""
        names = {uid: name for uid, name in claim.pods.items() if name}

        def written(known: Mapping[str, ClaimInfo]) -> list[ClaimInfo]:
            state = claim.state(_certain(known.get(claim.uid)), self.driver, phase)
            phases = {did.phase for did in state.driver_states.values()}
            return [
                ClaimInfo(
                    state,
                    prepared=phases == {ClaimPhase.PREPARED},
                    unpreparing=ClaimPhase.UNPREPARING in phases,
                    annotations=names,
                )
            ]

        self.cache.change([claim.uid], written)

    def remove(self, uid: str) -> None:
        """Delete this driver's part, and the claim with the last part."""
        self.cache.delete_part(uid, self.driver)

    def _concerns(self, claim: ClaimInfo) -> bool:
        return claim.guessed or self.driver in claim.state.driver_states

    def _refuse_if_held(self, claim: DriverClaim, device: Device) -> None:
        for uid in sorted(self.cache.holders(self.driver, None, device.device_name) - {claim.uid}):
            holder = self.cache.get(uid)
            held = holder.held(self.driver).devices if holder else ()
            for other in held:
                if holder and other.device_name == device.device_name and not self._may_overlap(device, other):
                    damaged = ", whose state is damaged" if holder.guessed else ""
                    raise DeviceHeld(
                        f"device {device.pool_name}/{device.device_name} is held by claim {'/'.join(holder.name)} "
                        f"(UID {uid}{damaged}); it is free once that claim is unprepared"
                    )

    def _may_overlap(self, one: Device, other: Device) -> bool:
        """Admin access does not occupy a device, and each share has its own id."""
        if one.pool_name != other.pool_name and not self._same_device(one, other):
            return True
        if one.admin_access or other.admin_access:
            return True
        return bool(one.share_id and other.share_id) and one.share_id != other.share_id


def _certain(known: ClaimInfo | None) -> ClaimInfoState | None:
    """The state before a write. The write gives the whole record this boot's id and ends any doubt about it, so a part
    that another driver prepared before a reboot or damage must not look prepared: it is set up again."""
    if known is None or (known.from_this_boot and not known.guessed):
        return known.state if known else None
    parts = {
        driver: replace(did, phase=ClaimPhase.PREPARING) if did.phase is ClaimPhase.PREPARED else did
        for driver, did in known.state.driver_states.items()
    }
    return replace(known.state, driver_states=parts)
