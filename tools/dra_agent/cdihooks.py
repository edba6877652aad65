"""How this driver sets up devices: one CDI file per claim. The ClaimPreparer decides the order of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from draState import (
    ClaimGone,
    ClaimInvalid,
    ClaimRef,
    DRAError,
    DriverClaim,
    DriverHooks,
    DriverState,
    PodConfigStore,
    ServerUnreachable,
    read_allocation,
)

from . import podconfigs
from .apiserver import CLAIMS, ApiError, ApiTimeout, ApiUnreachable
from .cdi import CdiFolder, device_edits
from .inventory import Inventory
from .parameters import Parameters, check_parameters
from .users import Processes


class ClaimSource(Protocol):
    """What is needed of an ApiServer."""

    def claim(self, namespace: str, name: str) -> Mapping[str, Any]: ...
    def claims(self) -> Iterator[Mapping[str, Any]]: ...


class CdiHooks(DriverHooks):
    """`driver_data` is the content of the file, so it can be written again even if the inventory has changed.

    `inventory` returns what the node offers now.
    """

    def __init__(
        self,
        inventory: Callable[[], Inventory],
        cdi: CdiFolder,
        pods: PodConfigStore,
        server: ClaimSource,
        processes: Processes,
    ) -> None:
        self.driver = inventory().driver
        self._inventory = inventory
        self._cdi = cdi
        self._pods = pods
        self._server = server
        self._processes = processes

    def look_up(self, ref: ClaimRef) -> DriverClaim:
        with _translated(f"claim {ref.namespace}/{ref.name} (UID {ref.uid})"):
            found = self._server.claim(ref.namespace, ref.name)
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
        podconfigs.follow(self._pods, claim)
        self._cdi.write(claim.uid, edits)
        return replace(claim, devices=tuple(ready), driver_data=edits)

    def refresh(self, claim: DriverClaim) -> None:
        try:
            check_parameters(claim)
        except ClaimInvalid:
            pass  # an agent that knew other parameters set it up; the file has their result
        else:
            podconfigs.follow(self._pods, claim)
        self._cdi.write(claim.uid, claim.driver_data)

    def tear_down(self, claim: DriverClaim) -> None:
        self._cdi.remove(claim.uid)
        podconfigs.forget(self._pods, claim.uid)

    def users(self, claim: DriverClaim) -> list[str]:
        return self._processes.using(claim)

    def find(self, uid: str) -> ClaimRef | None:
        with _translated(f"claim (UID {uid})"):
            for claim in self._server.claims():
                metadata = claim.get("metadata") or {}
                if metadata.get("uid") == uid:
                    return ClaimRef(uid, metadata["name"], metadata["namespace"])
        raise ClaimGone(f"claim (UID {uid}): the API server has no claim with this UID")

    def traces(self) -> Iterable[str]:
        return self._cdi.uids()

    def trace(self, uid: str) -> DriverState | None:
        return self._cdi.shown(uid, self._inventory().pool_of)


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Errors of the API server, as look_up raises them."""
    try:
        yield
    except ApiTimeout:
        raise
    except ApiUnreachable as error:
        raise ServerUnreachable(str(error)) from error
    except ApiError as error:
        if error.missing == CLAIMS:
            raise ClaimGone(f"{where}: {error}") from error
        raise DRAError(str(error)) from error
