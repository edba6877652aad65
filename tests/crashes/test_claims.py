"""The example agent over every power loss: prepare, crash, restart, reconcile.

The author of an agent writes three lines: a loop over the crashes, the restart, and what must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from checkpointmanager.testing import Crash, Fault, acknowledge
from draState import (
    Allocation,
    ClaimInfoCache,
    ClaimRef,
    Device,
    DRAManager,
    Pod,
    PrepareResult,
    ResourceClaim,
)

from .sampling import some
from .scenarios import MATTERS_NOT

GPU = "gpu.example.com"
Chaos = Callable[..., Iterator[Crash]]


class Gpus:
    """The hardware: it forgets nothing when the power fails, so the agent must not either."""

    def __init__(self, prepared: Iterable[str] = ()) -> None:
        self.prepared = {*prepared}

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        for claim in claims:
            acknowledge(f"prepared {claim.uid}")
            self.prepared.add(claim.uid)
        return {claim.uid: PrepareResult((Device("pool", f"gpu-{claim.uid}"),)) for claim in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        self.prepared -= {claim.uid for claim in claims}
        return {claim.uid: "" for claim in claims}


@contextmanager
def agent(directory: Path, gpus: Gpus) -> Iterator[DRAManager]:
    cache = ClaimInfoCache(directory / "claims")
    try:
        yield DRAManager(cache, {GPU: gpus})
    finally:
        cache.close()


def pod(uid: str, *claims: str) -> Pod:
    allocations = {GPU: Allocation()}
    known = {name: ResourceClaim(name, name, "default", allocations, frozenset({uid})) for name in claims}
    return Pod(uid, uid, "default", known)


WEB = pod("web", "claim-1", "claim-2")
JOB = pod("job", "claim-3")


def prepare(directory: Path) -> None:
    with agent(directory, Gpus()) as manager:
        for each in (WEB, JOB):
            manager.prepare_resources(each)
            acknowledge(each.uid)


def check_known(after: Crash | Fault) -> None:
    with agent(after.directory, Gpus()) as manager:
        pods = {pod.uid for pod in (WEB, JOB)}.intersection(after.acknowledged)
        assert all(manager.pod_might_need_to_unprepare(uid) for uid in pods)


def test_a_prepared_claim_survives_every_power_loss(checkpoint_chaos: Chaos) -> None:
    """Whatever the driver may have prepared before the crash: the restarted agent knows of it, and releases it."""
    states = 0
    for crash in some(checkpoint_chaos(prepare, ignore=MATTERS_NOT)):
        check_known(crash)
        gpus = Gpus(word.split()[1] for word in crash.acknowledged if word.startswith("prepared "))
        with agent(crash.directory, gpus) as manager:
            assert gpus.prepared <= {claim.uid for claim in manager.cache}, "a prepared device that no claim records"
            assert not manager.cache.report().degraded
            manager.reconcile([JOB], complete=True)
            assert gpus.prepared <= {"claim-3"}, "web is gone, its devices are not"
            manager.prepare_resources(JOB)
            assert manager.cache.holders(GPU, "pool", "gpu-claim-3") == {"claim-3"}
        states += 1
    print(f"prepare, crash, restart, reconcile: {states} states")
    assert states >= 50


def prepare_and_unprepare(directory: Path) -> None:
    with agent(directory, Gpus()) as manager:
        manager.prepare_resources(WEB)
        manager.unprepare_resources(WEB)
        acknowledge("web is gone")


def test_an_unprepared_claim_never_comes_back(checkpoint_chaos: Chaos) -> None:
    for crash in some(checkpoint_chaos(prepare_and_unprepare, ignore=MATTERS_NOT)):
        with agent(crash.directory, Gpus()) as manager:
            assert not ("web is gone" in crash.acknowledged and len(manager.cache))
