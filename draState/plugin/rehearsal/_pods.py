"""Pods that come and go: the scheduler gives each a device, and kubelet has it prepared and later unprepared; and the
journal of what was acknowledged, for comparison with what the agent remembers.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterable, Mapping

from ._apiserver import LocalApiServer
from ._kubelet import Claim, Kubelet, names

RETRY_SECONDS = 0.02
Holdings = Mapping[str, tuple[str, ...]]  # claim UID -> names of its devices


class Journal:
    """Single-threaded."""

    def __init__(self) -> None:
        self.prepared: dict[str, tuple[str, ...]] = {}  # acknowledged and not unprepared since
        self.open: dict[str, tuple[str, ...]] = {}  # requested, no answer yet: may or may not exist
        self.acknowledged = 0  # the number of answers
        self.problems: list[str] = []  # wrong answers

    def asked(self, uid: str, devices: Iterable[str]) -> None:
        """Call this before a prepare or an unprepare."""
        self.open[uid] = tuple(devices)
        self.prepared.pop(uid, None)

    def answered(self, uid: str, given: tuple[str, ...] | None = None) -> None:
        """Call this after a success, with the devices that were prepared: from now on the result must hold."""
        expected = self.open.pop(uid, ())
        self.acknowledged += 1
        if given is None:
            return
        if given != expected:
            self.problems.append(f"{uid} was given {given}, and the scheduler said {expected}")
        for other, held in self.prepared.items():
            if other != uid and set(held) & set(given):
                self.problems.append(f"{set(held) & set(given)} was handed to {uid} while {other} has it")
        self.prepared[uid] = given

    def differences(self, remembered: Holdings) -> list[str]:
        """Errors in what the agent remembers. Calls without an answer may or may not have happened."""
        wrong = list(self.problems)
        for uid, devices in self.prepared.items():
            if remembered.get(uid) != devices:
                wrong.append(f"{uid} was acknowledged with {devices}, and is now {remembered.get(uid, 'gone')}")
        for uid in remembered.keys() - self.prepared.keys() - self.open.keys():
            wrong.append(f"{uid} was acknowledged as unprepared, and is still there")
        holders: dict[str, str] = {}
        for uid, devices in remembered.items():
            for device in devices:
                if holders.setdefault(device, uid) != uid:
                    wrong.append(f"{device} is held by {holders[device]} and by {uid}")
        return wrong


class Pods:
    """One claim per pod. Like a scheduler, it reuses a device only after the claim that had it is unprepared."""

    def __init__(
        self,
        cluster: LocalApiServer,
        kubelet: Kubelet,
        journal: Journal,
        *,
        driver: str,
        pool: str,
        devices: Iterable[str],
    ) -> None:
        self._cluster = cluster
        self._kubelet = kubelet
        self._journal = journal
        self._driver = driver
        self._pool = pool
        self._free = list(devices)
        self._chance = random.Random(1)
        self.errors: list[str] = []  # the errors that claims got before they succeeded
        self.ended = asyncio.Event()  # set it to end `run`

    async def run(self, at_once: int) -> None:
        """Keep this many pods running, each followed by another, until `ended` is set; prepared claims stay so."""
        await asyncio.gather(*(self._one_after_the_other() for _ in range(at_once)))

    async def start(self) -> Claim:
        """Start one pod; its claim is prepared when this returns."""
        device = self._free.pop(self._chance.randrange(len(self._free)))
        uid = str(uuid.uuid4())
        claim = Claim(uid, f"claim-{uid[:13]}")
        self._cluster.allocate(uid, claim.name, [device], driver=self._driver, pool=self._pool, pods=[f"pod-{uid[:8]}"])
        self._journal.asked(uid, [device])
        while True:
            prepared = (await self._kubelet.prepare(claim))[uid]
            if not prepared.error:
                break
            self.errors.append(prepared.error)
            await asyncio.sleep(RETRY_SECONDS)
        self._journal.answered(uid, names(prepared.devices))
        return claim

    async def end(self, claim: Claim) -> None:
        """End a pod; its claim is unprepared when this returns."""
        devices = self._journal.prepared[claim.uid]
        self._journal.asked(claim.uid, devices)
        while error := (await self._kubelet.unprepare(claim))[claim.uid]:
            self.errors.append(error)
            await asyncio.sleep(RETRY_SECONDS)
        self._journal.answered(claim.uid)
        self._cluster.forget_claim(claim.name)
        self._free += devices

    async def _one_after_the_other(self) -> None:
        while not self.ended.is_set():
            claim = await self.start()
            if self.ended.is_set():
                return
            await asyncio.sleep(self._chance.random() / 50)
            await self.end(claim)
