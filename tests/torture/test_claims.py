"""A DRA agent killed again and again: no device is lost, no claim of a running pod is forgotten."""

from __future__ import annotations

import random
import signal
from functools import partial
from pathlib import Path

import pytest

from draState import ClaimInfoCache

from ..checkpointmanager.processes import Child
from ..checkpointmanager.programs import die_before_call
from ..draState.node import assert_indexes_agree
from ..long import times
from .agent import DRIVERS, PODS, Hardware, live

STEPS = times(12, 1200)
STRIDE = times(10, 2)  # system calls from one kill to the next


class Ledger:
    """The agent's reports, pod by pod. A pod is running, gone, or in between if its agent died."""

    def __init__(self, directory: Path, hardware: Path) -> None:
        self._directory = directory
        self._hardware = [Hardware(hardware, name) for name in DRIVERS]
        self._running: set[str] = set()
        self._between: set[str] = set()
        self._active: set[str] = set()
        self._torn = b""
        self.acknowledged = 0

    def active(self, dice: random.Random) -> set[str]:
        """The pods that kubelet gives the next agent: of those in between, some should run and some not."""
        self._active = self._running | {pod for pod in sorted(self._between) if dice.random() < 0.5}
        return self._active

    def read(self, output: bytes) -> None:
        *lines, self._torn = (self._torn + output).split(b"\n")
        for line in lines:
            event, operation, pod = line.decode().split()
            self.acknowledged += event == "done"
            if operation == "reconcile":
                self._between &= self._active if event == "done" else self._between
            elif event == "done":
                self._between.discard(pod)
                self._running |= {pod} if operation == "prepare" else set()
            elif operation == "unprepare":
                self._running.discard(pod)
                self._between.add(pod)
            elif pod not in self._running:  # a running pod keeps its devices while it is prepared again
                self._between.add(pod)

    def check(self) -> None:
        """Nothing that was acknowledged is missing, and no driver holds a forgotten claim."""
        cache = ClaimInfoCache(self._directory)
        try:
            assert not cache.report().degraded
            assert_indexes_agree(cache)
            known = {claim.uid for claim in cache}
            for hardware in self._hardware:
                assert hardware.held() <= known, "a driver holds a forgotten claim"
            for pod in self._running:
                self._check_running(cache, pod)
            for pod in PODS.keys() - self._running - self._between:
                assert cache.of_pod(pod) == (), f"{pod} is gone, and that was acknowledged"
        finally:
            cache.close()

    def _check_running(self, cache: ClaimInfoCache, pod: str) -> None:
        claims = {claim.uid: claim for claim in cache.of_pod(pod)}
        assert claims.keys() == PODS[pod].needed_claims().keys()
        for uid, claim in claims.items():
            assert {driver for driver, _, _ in claim.state.devices()} == set(DRIVERS)
            assert all(uid in hardware.held() for hardware in self._hardware)


@pytest.mark.usefixtures("no_waiting_for_the_disk")
def test_kills_before_each_system_call_lose_no_claim_and_leak_no_device(tmp_path: Path) -> None:
    directory, hardware = tmp_path / "claims", tmp_path / "hardware"
    dice, ledger = random.Random(5), Ledger(directory, hardware)
    for step in range(1, STEPS + 1):
        agent = partial(live, directory, hardware, seed=step, active=ledger.active(dice))
        with Child(lambda say, n=STRIDE * step, a=agent: die_before_call(n, tmp_path, partial(a, say=say))) as child:  # type: ignore[misc]
            ledger.read(child.read_to_end())
            assert child.wait() == -signal.SIGKILL
        ledger.check()
    assert ledger.acknowledged > STEPS // 4
