"""One driver: its part of the claims in a cache, its hooks, and the claims that this process has set up.

Other drivers of the process may have parts of the same claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from checkpointmanager import DirectoryLocked, KeyLocks

from .._claims.cache import ClaimInfoCache
from .._claims.info import ClaimInfo
from .._claims.state import ClaimInfoState, ClaimPhase, Device
from .._draplugin import PrepareResult
from .._errors import DeviceHeld, in_one_line
from .claim import DriverClaim
from .events import ClaimEvent, ClaimEventKind, emit
from .hooks import DriverHooks
from .lookups import LookUps


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


class DriverSide:
    """What the two parts of a ClaimPreparer share: one answers kubelet, the other reviews what was answered."""

    def __init__(
        self,
        cache: ClaimInfoCache,
        hooks: DriverHooks,
        look_up_seconds: float,
        on_event: Callable[[ClaimEvent], object] | None,
    ) -> None:
        self.hooks = hooks
        self.records = DriverRecords(cache, hooks)
        self.look_ups = LookUps(hooks, look_up_seconds)
        self.operations = KeyLocks()  # by claim UID, held across the hooks
        self.ready: set[str] = set()  # UIDs of claims that were set up or refreshed by this process
        self._on_event = on_event

    def follow(self, old: DriverClaim, found: DriverClaim) -> PrepareResult:
        """Keep a claim that is already set up as allocated; pods and request names may have changed."""
        requests = {(*device.identity, device.admin_access): device.request_names for device in found.devices}
        devices = tuple(
            replace(device, request_names=requests[*device.identity, device.admin_access]) for device in old.devices
        )
        claim = replace(old, name=found.name, namespace=found.namespace, devices=devices, pods=found.pods)
        self.hooks.refresh(claim.copy())
        self.records.write(claim, ClaimPhase.PREPARED)
        return PrepareResult(devices)

    @contextmanager
    def reported(self, uid: str, operation: str, failures: list[str] | None = None) -> Iterator[None]:
        """Report an error as the failure of one claim; it goes no further."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  (a hook is foreign code)
            why = in_one_line(error)
            kind = ClaimEventKind.STATE_LOST if isinstance(error, DirectoryLocked) else ClaimEventKind.FAILED
            self.emit(kind, uid, f"{operation}: {why}")
            if failures is not None:
                failures.append(why)

    def emit(self, kind: ClaimEventKind, uid: str, detail: str, claim: ClaimInfo | None = None) -> None:
        """`claim` is the record, if it may be gone."""
        if known := claim or self.records.get(uid):
            view = self.records.view(known)
            event = ClaimEvent(kind, uid, detail, view.ref if view.name else None, view.pods)
        else:
            event = ClaimEvent(kind, uid, detail)
        emit(event, self._on_event)
