"""Kubelet's metrics for a cache."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from draState import ClaimInfo, ClaimInfoCache, ClaimInfoState, Device, DriverState
from draState.metrics import ClaimMetrics

GPU, NIC = "gpu.example.com", "nic.example.com"


def state(uid: str, *drivers: str) -> ClaimInfoState:
    states = {driver: DriverState((Device("node", uid),)) for driver in drivers}
    return ClaimInfoState(uid, f"claim-{uid}", "default", frozenset({"pod"}), states)


def test_prepared_claims_are_in_use_and_counted_by_driver_and_across_all(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    cache = ClaimInfoCache(tmp_path)
    ClaimMetrics(cache, registry)
    cache.put(ClaimInfo(state("a", GPU)), ClaimInfo(state("b", GPU, NIC)), ClaimInfo(state("c", GPU)))
    for uid in "ab":
        cache.mark(uid, prepared=True)

    def in_use(driver: str) -> float | None:
        return registry.get_sample_value("dra_resource_claims_in_use", {"driver_name": driver})

    assert (in_use(GPU), in_use(NIC), in_use("<any>")) == (2, 1, 2)
    cache.delete("b")
    assert (in_use(GPU), in_use(NIC), in_use("<any>")) == (1, None, 1)
    cache.close()


def test_a_claim_that_cannot_be_trusted_is_named(tmp_path: Path) -> None:
    cache = ClaimInfoCache(tmp_path)
    cache.put(ClaimInfo(state("a", GPU)))
    cache.close()
    (tmp_path / "a.json").write_bytes(b"")
    registry = CollectorRegistry()
    cache = ClaimInfoCache(tmp_path)
    ClaimMetrics(cache, registry)
    assert registry.get_sample_value("dra_resource_claims_unknown", {"claim_uid": "a"}) == 1
    cache.close()
