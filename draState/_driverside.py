"""What the two parts of a ClaimPreparer share: one answers kubelet, the other reviews what was answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from checkpointmanager import DirectoryLocked, KeyLocks

from ._claimcache import ClaimInfoCache
from ._claimevents import ClaimEvent, ClaimEventKind, emit
from ._claiminfo import ClaimInfo
from ._claimstate import ClaimPhase
from ._draplugin import PrepareResult
from ._driverclaim import DriverClaim
from ._driverhooks import DriverHooks
from ._driverrecords import DriverRecords
from ._errors import in_one_line
from ._lookups import LookUps


class DriverSide:
    """One driver: its hooks, its records, and the claims that this process has set up."""

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
