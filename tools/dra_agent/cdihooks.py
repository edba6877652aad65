"""How this driver sets up devices: one CDI file per claim. The ClaimPreparer decides the order of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from draState import (
    ClaimGone,
    ClaimInvalid,
    ClaimRef,
    Device,
    DRAError,
    DriverClaim,
    DriverHooks,
    ServerUnreachable,
    read_allocation,
)

from .apiserver import CLAIMS, ApiError, ApiTimeout, ApiUnreachable
from .cdi import CdiFolder, device_edits
from .inventory import Inventory
from .parameters import Parameters, check_parameters
from .podconfigs import PodConfigs


class CdiHooks(DriverHooks):
    """`driver_data` is the content of the file, so it can be written again even if the inventory has changed.

    `fetch` gets a ResourceClaim by namespace and name; `inventory` returns what the node offers now.
    """

    def __init__(
        self,
        inventory: Callable[[], Inventory],
        cdi: CdiFolder,
        pods: PodConfigs,
        fetch: Callable[[str, str], Mapping[str, Any]],
    ) -> None:
        self.driver = inventory().driver
        self._inventory = inventory
        self._cdi = cdi
        self._pods = pods
        self._fetch = fetch

    def look_up(self, ref: ClaimRef) -> DriverClaim:
        try:
            found = self._fetch(ref.namespace, ref.name)
        except ApiError as error:
            if error.missing == CLAIMS:
                raise ClaimGone(f"claim {ref.namespace}/{ref.name} (UID {ref.uid}): {error}") from error
            if isinstance(error, ApiUnreachable):
                raise ServerUnreachable(str(error)) from error
            if isinstance(error, ApiTimeout):
                raise
            raise DRAError(str(error)) from error
        return read_allocation(ref, found, self.driver)

    def check(self, claim: DriverClaim) -> None:
        where = f"claim {claim.namespace}/{claim.name} (UID {claim.uid})"
        inventory = self._inventory()
        for device in claim.devices:
            offered = inventory.offered(device.pool_name, device.device_name)
            if not offered:
                name = f"{device.pool_name}/{device.device_name}"
                raise ClaimInvalid(f"{where} was given device {name}, which this node does not have")
            if device.share_id and not offered.shared:
                raise ClaimInvalid(f"{where} was given a share of {device.device_name}, which is not for sharing")
        check_parameters(claim)

    def set_up(self, claim: DriverClaim) -> DriverClaim:
        edits = []
        inventory = self._inventory()
        for device in claim.devices:
            offered = inventory.offered(device.pool_name, device.device_name)
            if not offered:  # the file has changed since it was checked
                raise ClaimInvalid(f"device {device.pool_name}/{device.device_name} is not there any more")
            asked = Parameters.merged(claim.configs_of(device))
            env = {**offered.env, **asked.env}
            edits.append(device_edits(claim.uid, device, env, offered.device_nodes, asked.annotations))
        ready = [replace(d, cdi_device_ids=(self._cdi.device_id(claim.uid, d),)) for d in claim.devices]
        self._pods.follow(claim)
        self._cdi.write(claim.uid, edits)
        return replace(claim, devices=tuple(ready), driver_data=edits)

    def refresh(self, claim: DriverClaim) -> None:
        try:
            check_parameters(claim)
        except ClaimInvalid:
            pass  # an agent that knew other parameters set it up; the file has their result
        else:
            self._pods.follow(claim)
        self._cdi.write(claim.uid, claim.driver_data)

    def tear_down(self, claim: DriverClaim) -> None:
        self._cdi.remove(claim.uid)
        self._pods.forget(claim.uid)

    def devices_of_damaged(self, uid: str) -> tuple[Device, ...]:
        return self._cdi.devices(uid, self._inventory().pool_of)
