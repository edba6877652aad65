"""A DRA agent that lives until it is killed, and hardware that outlives it.

Pods start and end at random. Each has its own claim and one that it shares with others, both of two drivers.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from draState import ClaimInfoCache, ClaimRef, Device, DRAManager, Pod, PrepareResult

from ..draState.claims import GPU, NIC, claim_of, pod_of

DRIVERS = (GPU, NIC)
PODS: dict[str, Pod] = {
    f"pod-{number}": pod_of(
        f"pod-{number}", claim_of(f"own-{number}", GPU, NIC), claim_of(f"shared-{number % 2}", GPU, NIC)
    )
    for number in range(6)
}


class Hardware:
    """What a driver has prepared, as files that only the driver touches."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / name
        self._folder.mkdir(parents=True, exist_ok=True)
        self._name = name

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        for claim in claims:
            (self._folder / claim.uid).touch()
        return {claim.uid: PrepareResult((Device("pool", f"{self._name}-{claim.uid}"),)) for claim in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        for claim in claims:
            (self._folder / claim.uid).unlink(missing_ok=True)
        return {claim.uid: "" for claim in claims}

    def held(self) -> set[str]:
        return set(os.listdir(self._folder))


def live(directory: Path, hardware: Path, say: int, *, seed: int, active: Iterable[str]) -> None:
    """Start like a node agent, with the pods that should run; then start and end pods until killed."""
    dice = random.Random(seed)
    running = set(active)
    cache = ClaimInfoCache(directory)
    manager = DRAManager(cache, {name: Hardware(hardware, name) for name in DRIVERS})

    def report(event: str, what: str) -> None:
        os.write(say, f"{event} {what}\n".encode())

    def start(pod: str) -> None:
        report("begin", f"prepare {pod}")
        manager.prepare_resources(PODS[pod])
        report("done", f"prepare {pod}")

    report("begin", "reconcile -")
    manager.reconcile([PODS[pod] for pod in running], complete=True)
    report("done", "reconcile -")
    for pod in sorted(running):
        start(pod)
    while True:
        pod = dice.choice(sorted(PODS))
        if pod in running:
            report("begin", f"unprepare {pod}")
            manager.unprepare_resources(PODS[pod])
            report("done", f"unprepare {pod}")
        else:
            start(pod)
        running ^= {pod}
