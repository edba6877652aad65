"""Prepares and unprepares claims: decides, records, and only then answers.

    prepare      look into the cache; else ask the API server, see that the devices are free, write the claim
                 (from now on it holds them), write the CDI file, mark it prepared
    unprepare    mark it unpreparing, remove the CDI file, delete the claim (now its devices are free)

A kill between two steps leaves a claim that holds its devices, and the CDI file follows from it at the next
start. Nothing here needs the API server except the first prepare of a claim in a boot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from checkpointmanager import CheckpointError, DirectoryLocked, check_key
from checkpointmanager.aio import KeyedThreadsClosed
from draState import ClaimInfo, ClaimInfoState, ClaimRef, Device, DRAError, DriverState, Prepared
from draState.aio import AsyncClaimInfoCache

from .apiserver import ApiError
from .cdi import CdiFolder, agree
from .resourceclaim import Allotment, allotment
from .settings import Inventory

logger = logging.getLogger("dra_agent")

API_THREADS = 16  # requests to the API server at once; of their own, so that a slow one holds up no unprepare


class DeviceHeld(DRAError):
    """Another claim has the device, and it is not for sharing."""


class Preparer:
    """Calls of one claim come one after the other, in the order in which they arrived."""

    def __init__(
        self,
        cache: AsyncClaimInfoCache,
        inventory: Inventory,
        cdi: CdiFolder,
        fetch: Callable[[str, str], Mapping[str, Any]],
        on_lost: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`fetch` gets a ResourceClaim by namespace and name; `on_lost` hears that the directory is not ours."""
        self.cache = cache.cache
        self._threads = cache.threads
        self._inventory = inventory
        self._cdi = cdi
        self._fetch = fetch
        self._on_lost = on_lost
        self._api_threads = ThreadPoolExecutor(API_THREADS, thread_name_prefix="api")

    def restore(self) -> None:
        """After a start, before anything is answered: CDI files and cache agree.

        Claims of this boot are as prepared as they were. Those of an earlier one hold their devices and wait to
        be prepared anew. The CDI file of a damaged claim is left as it is, and what it names stays held.
        """
        current = [c for c in self.cache if c.from_this_boot and not c.unknown and self._devices_of(c)]
        untouched = self.cache.report().unknown
        failures = agree(self._cdi, [claim.state for claim in current], untouched)
        for claim in current:
            if claim.uid not in failures:
                self.cache.mark(claim.uid, prepared=True)
        for uid in untouched:
            self.cache.change([uid], self._with_devices_of_its_cdi_file)
        for uid, error in failures.items():
            logger.error("claim %s: its CDI file cannot be written (%s); it has to be prepared again", uid, error)
        for uid, why in untouched.items():
            logger.error("claim %s: unknown, its devices stay held: %s", uid, why)

    def _with_devices_of_its_cdi_file(self, known: Mapping[str, ClaimInfo]) -> list[ClaimInfo]:
        """For a claim that is only guessed: in memory, never on disk."""
        driver = self._inventory.driver
        return [
            replace(claim, state=replace(claim.state, driver_states={driver: DriverState(devices)}))
            for claim in known.values()
            if claim.guessed and not claim.state.driver_states
            if (devices := tuple(Device(self._inventory.pool, name) for name in self._cdi.devices(claim.uid)))
        ]

    async def prepare(self, ref: ClaimRef) -> Prepared:
        """The devices of a claim, or why it has none."""
        if answer := self._answer(ref.uid):
            return answer
        try:
            check_key(ref.uid)
            async with self._threads.turn([f"claim/{ref.uid}"]):
                if answer := self._answer(ref.uid):
                    return answer
                loop = asyncio.get_running_loop()
                claim = await loop.run_in_executor(self._api_threads, self._fetch, ref.namespace, ref.name)
                given = allotment(ref, claim, self._inventory)
                # Two claims that were given one device must not both find it free.
                async with self._threads.turn(f"device/{device.device_name}" for device in given.devices):
                    return await self._threads.call(lambda: self._record(ref, given))
        except (ApiError, CheckpointError, DRAError, KeyedThreadsClosed, OSError) as error:
            return Prepared(error=self._told("prepare", ref, error))

    async def unprepare(self, ref: ClaimRef) -> str:
        """The error, "" for success. A claim that is not known has nothing to give back."""
        try:
            check_key(ref.uid)
            await self._threads.run([f"claim/{ref.uid}"], lambda: self._release(ref.uid))
        except (CheckpointError, KeyedThreadsClosed, OSError) as error:
            return self._told("unprepare", ref, error)
        return ""

    def close(self) -> None:
        self._api_threads.shutdown(wait=False, cancel_futures=True)

    def _answer(self, uid: str) -> Prepared | None:
        claim = self.cache.get(uid)
        return Prepared(self._devices_in(claim.served)) if claim and claim.prepared else None

    def _record(self, ref: ClaimRef, given: Allotment) -> Prepared:
        """In a thread, while it is the turn of the claim and of its devices."""
        for device in given.devices:
            self._refuse_if_held(ref, device)
        known = self.cache.get(ref.uid)
        before = known.state if known else ClaimInfoState(ref.uid, ref.name, ref.namespace)
        driver = before.driver_states.get(self._inventory.driver, DriverState())
        devices = [
            replace(d, cdi_device_ids=(self._cdi.device_id(ref.uid, d.device_name, d.share_id),)) for d in given.devices
        ]
        state = replace(
            before,
            claim_name=ref.name,
            namespace=ref.namespace,
            pod_uids=frozenset(given.pods),
            driver_states={**before.driver_states, self._inventory.driver: driver.with_devices(devices)},
        )
        self.cache.put(ClaimInfo(state, annotations=given.pods))
        self._cdi.write(state)
        self.cache.mark(ref.uid, prepared=True)
        logger.info("claim %s: prepared %s", ref.uid, ", ".join(device.device_name for device in devices))
        return Prepared(tuple(devices))

    def _refuse_if_held(self, ref: ClaimRef, device: Device) -> None:
        others = self.cache.holders(self._inventory.driver, device.pool_name, device.device_name) - {ref.uid}
        for uid in sorted(others):
            holder = self.cache.get(uid)
            if holder is None:
                continue
            shares = {other.share_id for other in self._devices_of(holder) if other.device_name == device.device_name}
            if self._inventory.devices[device.device_name].shared and device.share_id not in shares:
                continue
            damaged = ", whose state is damaged" if holder.unknown else ""
            raise DeviceHeld(
                f"device {device.pool_name}/{device.device_name} is held by claim {'/'.join(holder.name)} "
                f"(UID {uid}{damaged}); it is free when that one is unprepared"
            )

    def _release(self, uid: str) -> None:
        """In a thread, while it is the claim's turn."""
        self.cache.mark(uid, unpreparing=True, prepared=False)
        self._cdi.remove(uid)
        if uid in self.cache:
            self.cache.delete(uid)
            logger.info("claim %s: unprepared", uid)

    def _devices_of(self, claim: ClaimInfo) -> tuple[Device, ...]:
        return self._devices_in(claim.state)

    def _devices_in(self, state: ClaimInfoState) -> tuple[Device, ...]:
        driver = state.driver_states.get(self._inventory.driver)
        return driver.devices if driver else ()

    def _told(self, operation: str, ref: ClaimRef, error: Exception) -> str:
        if isinstance(error, DirectoryLocked):
            self._on_lost(str(error))
        logger.warning("claim %s: %s failed: %s", ref.uid, operation, error)
        return str(error)
