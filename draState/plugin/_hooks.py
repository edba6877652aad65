"""Makes the hooks of a ClaimPreparer from a Driver: its own hooks, and around them what every driver needs: the API
server for look-ups, one CDI file per claim, the configs of pods, and the processes that use a device.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

from checkpointmanager import CheckpointWriteFailed

from .. import (
    ClaimGone,
    ClaimInfoCache,
    ClaimInvalid,
    ClaimRef,
    Device,
    DRAError,
    DriverClaim,
    DriverHooks,
    DriverState,
    PodConfigStore,
    ServerUnreachable,
    read_allocation,
)
from ._apiserver import CLAIMS, ApiError, ApiServer, ApiTimeout, ApiUnreachable
from ._cdi import CdiFolder, device_edits
from ._driver import Driver, Hook, PreparedDevice
from ._inventory import Inventory
from ._reports import DeviceStatuses
from ._users import Processes

logger = logging.getLogger("draState.plugin")

T = TypeVar("T")


class Caller:
    """Calls the hooks of a driver from threads; coroutines run on the event loop that made this object."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def result(self, answer: Hook[T]) -> T:
        """Wait for the answer of a hook. Not for the event loop itself."""
        if isinstance(answer, Awaitable):
            answer = cast("Awaitable[T]", answer)
            return asyncio.run_coroutine_threadsafe(_awaited(answer), self._loop).result()
        return answer

    async def call(self, hook: Callable[[], Hook[T]]) -> T:
        """Call a hook from the event loop."""
        return await asyncio.to_thread(lambda: self.result(hook()))


async def _awaited(answer: Awaitable[T]) -> T:
    return await answer


class PluginHooks(DriverHooks):
    """The `driver_data` of a claim is what the driver chose ("data"), the devices of the CDI file, the configs, and
    what the claim's status shows of the devices.

    So the file can be written again even if the driver offers other devices by then.

    The configs of pods follow the claims, which are the truth. They are set after a claim was written as `preparing`
    and before it is `prepared`, and removed after it was written as `unpreparing` and before it is deleted. So a step
    that a kill interrupted is completed when the claim is prepared, restored or unprepared again, and configs that
    belong to no claim are removed at the next start.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        caller: Caller,
        inventory: Callable[[], Inventory],
        cdi: CdiFolder,
        pods: PodConfigStore,
        server: ApiServer,
        processes: Processes,
        statuses: DeviceStatuses,
    ) -> None:
        """`inventory` returns what the node offers now."""
        self.driver = driver.name
        self._driver = driver
        self._result = caller.result
        self._inventory = inventory
        self._cdi = cdi
        self._pods = pods
        self._server = server
        self._processes = processes
        self._statuses = statuses

    @property
    def chooses(self) -> bool:
        return type(self._driver).choose is not Driver.choose

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
        self._result(self._driver.check(claim))

    def choose(self, claim: DriverClaim, held: Mapping[str, DriverClaim]) -> Any:
        others = {uid: _for_driver(other) for uid, other in held.items()}
        return {"data": self._result(self._driver.choose(claim, others))}

    def set_up(self, claim: DriverClaim) -> DriverClaim:
        given = self._result(self._driver.set_up(_for_driver(claim)))
        prepared = [PreparedDevice(device) for device in claim.devices] if given is None else list(given)
        if Counter(each.device.identity for each in prepared) != Counter(each.identity for each in claim.devices):
            raise DRAError("set_up must return one PreparedDevice for each device of the claim")
        inventory = self._inventory()
        edits = []
        for each in prepared:
            offered = inventory.offered(each.device.pool_name, each.device.device_name)
            if not offered:  # it has changed since it was checked
                raise ClaimInvalid(f"device {each.device.pool_name}/{each.device.device_name} is not there any more")
            edits.append(device_edits(claim.uid, each, offered, claim.result_of(each.device)))
        configs = {_config_name(each.device): each.config for each in prepared if each.config is not None}
        data = _data(claim)
        self._keep_configs(claim, configs)
        self._cdi.write(claim.uid, edits, data)
        status = self._statuses.entries(prepared)
        self._statuses.report(claim.ref, status)
        devices = [each.device for each in prepared]
        ready = [replace(each, cdi_device_ids=(self._cdi.device_id(claim.uid, each),)) for each in devices]
        record = {"data": data, "devices": edits, "configs": configs, "status": status}
        return replace(claim, devices=tuple(ready), driver_data=record)

    def refresh(self, claim: DriverClaim) -> None:
        record = _record(claim)
        self._keep_configs(claim, record.get("configs") or {})
        self._cdi.write(claim.uid, record["devices"], _data(claim))
        self._statuses.report(claim.ref, record.get("status") or [])
        self._result(self._driver.refresh(_for_driver(claim)))

    def tear_down(self, claim: DriverClaim) -> None:
        self._result(self._driver.tear_down(_for_driver(claim)))
        self._cdi.remove(claim.uid)
        self._statuses.withdraw(claim.ref, _record(claim).get("status") or [])
        try:
            self._pods.delete_claim(claim.uid)
        except CheckpointWriteFailed as error:
            logger.warning("claim %s: the configs of its pods stay on disk until the next start: %s", claim.uid, error)

    def users(self, claim: DriverClaim) -> list[str]:
        return self._processes.using(claim, _record(claim).get("devices") or [])

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

    def _keep_configs(self, claim: DriverClaim, configs: Mapping[str, Any]) -> None:
        if configs:  # a claim without any never had any: others would be another allocation
            self._pods.follow(claim, configs)


def synchronize_configs(store: PodConfigStore, claims: ClaimInfoCache) -> None:
    """Drop configs that belong to no claim, and log what could not be dropped."""
    try:
        report = store.follow_claims(claims)
    except CheckpointWriteFailed as error:
        logger.error("configs of pods: %s", error)
        return
    if report is None:
        logger.warning("not cleaning up the configs of pods while %d claims are unknown", len(claims.report().unknown))
        return
    if report.removed:
        logger.info("dropped the configs of %d pods that no claim refers to", len(report.removed))
    for pod, why in {**report.problems, **report.failed}.items():
        logger.error("configs of pod %s: %s", pod, why)


def _config_name(device: Device) -> str:
    """The name of a device in the store."""
    return "-".join(filter(None, [device.device_name, device.share_id]))


def _record(claim: DriverClaim) -> dict[str, Any]:
    return claim.driver_data if isinstance(claim.driver_data, dict) else {}


def _data(claim: DriverClaim) -> Any:
    """What the driver chose."""
    return _record(claim).get("data")


def _for_driver(claim: DriverClaim) -> DriverClaim:
    return replace(claim, driver_data=_data(claim))


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
