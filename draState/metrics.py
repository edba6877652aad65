"""Prometheus metrics of claims and devices (extra [metrics]), under kubelet's names where it has them.

ClaimMetrics(cache)          # registers itself
PreparerMetrics(preparer)    # the same for a ClaimPreparer, on the driver's side
HealthMetrics(store)         # the same for a DeviceHealthStore
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ._claims.cache import ClaimInfoCache
from ._claims.state import ClaimPhase
from ._driver.preparer import ClaimPreparer
from ._health.device import Health
from ._health.store import DeviceHealthStore

__all__ = ["ClaimMetrics", "HealthMetrics", "PreparerMetrics"]

ANY = "<any>"  # kubelet's label for the count across all drivers: a claim may have several


class ClaimMetrics(Collector):
    """Claims in use and claims that cannot be trusted. Counted from memory at each scrape; no cost otherwise."""

    def __init__(self, cache: ClaimInfoCache, registry: CollectorRegistry | None = REGISTRY) -> None:
        self._cache = cache
        if registry:
            registry.register(self)

    def collect(self) -> Iterable[Metric]:
        claims = list(self._cache)
        prepared = [claim for claim in claims if claim.prepared]  # as kubelet counts
        drivers = Counter(driver for claim in prepared for driver in claim.state.driver_states)
        in_use = GaugeMetricFamily(
            "dra_resource_claims_in_use",
            "The number of ResourceClaims that are currently in use on the node, by driver name "
            "and across all drivers (<any>).",
            labels=["driver_name"],
        )
        in_use.add_metric([ANY], len(prepared))
        for driver, count in sorted(drivers.items()):
            in_use.add_metric([driver], count)
        unknown = _one_each(
            "dra_resource_claims_unknown",
            "1 for each claim whose state cannot be trusted, by UID. Its devices stay held.",
            (claim.uid for claim in claims if claim.unknown),
        )
        return [in_use, unknown]


class PreparerMetrics(Collector):
    """The phases of a ClaimPreparer's claims, its orphans, and its answers from memory."""

    def __init__(self, preparer: ClaimPreparer, registry: CollectorRegistry | None = REGISTRY) -> None:
        self._preparer = preparer
        if registry:
            registry.register(self)

    def collect(self) -> Iterable[Metric]:
        preparer = self._preparer
        states = [claim.state.driver_states.get(preparer.hooks.driver) for claim in preparer.cache]
        counted = Counter(state.phase for state in states if state)
        phases = GaugeMetricFamily(
            "dra_resource_claims_phase",
            "Claims by phase. A claim that stays preparing or unpreparing needs attention.",
            labels=["phase"],
        )
        for phase in ClaimPhase:
            phases.add_metric([phase], counted[phase])
        orphaned = _one_each(
            "dra_resource_claims_orphaned",
            "1 for each claim that holds devices which the API server no longer allocates to it, by UID.",
            preparer.review.orphans,
        )
        from_memory = CounterMetricFamily(
            "dra_resource_claims_answered_from_memory",
            "Prepares answered from memory because the API server could not be reached.",
        )
        from_memory.add_metric([], preparer.answered_from_memory)
        outdated = _one_each(
            "dra_resource_claims_outdated",
            "1 for each claim answered from memory although the API server had allocated other devices, by UID.",
            preparer.review.outdated,
        )
        unknown_devices = _one_each(
            "dra_resource_claims_unknown_devices",
            "1 for each damaged claim that holds devices which are not known, by UID: another claim may get them.",
            preparer.review.unknown_devices,
        )
        return [phases, orphaned, from_memory, outdated, unknown_devices]


class HealthMetrics(Collector):
    """Devices by health, and reports that a DeviceHealthStore could not keep or write."""

    def __init__(self, store: DeviceHealthStore, registry: CollectorRegistry | None = REGISTRY) -> None:
        self._store = store
        if registry:
            registry.register(self)

    def collect(self) -> Iterable[Metric]:
        devices = GaugeMetricFamily(
            "dra_devices_by_health",
            "Devices by driver name and health. A device whose report has timed out is left out until the next one.",
            labels=["driver_name", "health"],
        )
        for driver, its in sorted(self._store.drivers().items()):
            counted = Counter(device.health for device in its)
            for health in Health:
                devices.add_metric([driver, health], counted[health])
        ignored = GaugeMetricFamily(
            "dra_devices_health_ignored",
            "Devices of the driver's last report that exceed the limit and were ignored.",
            labels=["driver_name"],
        )
        for driver, count in sorted(self._store.ignored.items()):
            ignored.add_metric([driver], count)
        unsaved = GaugeMetricFamily(
            "dra_devices_health_unsaved",
            "1 for each driver whose file could not be read or written: a restart would lose its devices' health.",
            labels=["driver_name"],
        )
        for driver in sorted(self._store.problems):
            unsaved.add_metric([driver], 1)
        return [devices, ignored, unsaved]


def _one_each(name: str, text: str, uids: Iterable[str]) -> Metric:
    found = GaugeMetricFamily(name, text, labels=["claim_uid"])
    for uid in uids:
        found.add_metric([uid], 1)
    return found
