"""Figures of claims and devices for Prometheus, of the extra [metrics], under kubelet's names where it has them.

ClaimMetrics(cache)          # registers itself
PreparerMetrics(preparer)    # so does this one, on the driver's side
HealthMetrics(store)         # and this one, for a DeviceHealthStore
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ._claimcache import ClaimInfoCache
from ._claimpreparer import ClaimPreparer
from ._claimstate import ClaimPhase
from ._devicehealth import Health
from ._healthstore import DeviceHealthStore

__all__ = ["ClaimMetrics", "HealthMetrics", "PreparerMetrics"]

ANY = "<any>"  # kubelet's word for the number across all drivers: a claim may have several


class ClaimMetrics(Collector):
    """Counted when somebody scrapes, from memory: no cost otherwise."""

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
        unknown = GaugeMetricFamily(
            "dra_resource_claims_unknown",
            "Claims whose state cannot be trusted, each named by its UID. Their devices stay held.",
            labels=["claim_uid"],
        )
        for claim in claims:
            if claim.unknown:
                unknown.add_metric([claim.uid], 1)
        return [in_use, unknown]


class PreparerMetrics(Collector):
    """How far a ClaimPreparer is with its claims, and what only it still knows."""

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
            "Claims by how far the driver is with them. One that stays preparing or unpreparing needs a look.",
            labels=["phase"],
        )
        for phase in ClaimPhase:
            phases.add_metric([phase], counted[phase])
        orphaned = GaugeMetricFamily(
            "dra_resource_claims_orphaned",
            "Claims that hold devices although the API server does not give them these any more, by UID.",
            labels=["claim_uid"],
        )
        for uid in preparer.orphans.current(preparer.cache):
            orphaned.add_metric([uid], 1)
        from_memory = CounterMetricFamily(
            "dra_resource_claims_answered_from_memory",
            "Prepares that were answered without the present allocation, because nobody could be asked for it.",
        )
        from_memory.add_metric([], preparer.answered_from_memory)
        return [phases, orphaned, from_memory]


class HealthMetrics(Collector):
    """How many devices of each driver are healthy, and what a DeviceHealthStore could not keep."""

    def __init__(self, store: DeviceHealthStore, registry: CollectorRegistry | None = REGISTRY) -> None:
        self._store = store
        if registry:
            registry.register(self)

    def collect(self) -> Iterable[Metric]:
        devices = GaugeMetricFamily(
            "dra_devices_by_health",
            "Devices by driver name and health. One whose time-out is over is not counted until it is reported again.",
            labels=["driver_name", "health"],
        )
        for driver, its in sorted(self._store.drivers().items()):
            counted = Counter(device.health for device in its)
            for health in Health:
                devices.add_metric([driver, health], counted[health])
        ignored = GaugeMetricFamily(
            "dra_devices_health_ignored",
            "Devices of the driver's last report that are too many and not kept.",
            labels=["driver_name"],
        )
        for driver, count in sorted(self._store.ignored.items()):
            ignored.add_metric([driver], count)
        unsaved = GaugeMetricFamily(
            "dra_devices_health_unsaved",
            "Drivers whose file could not be read or written: a restart would not know their devices.",
            labels=["driver_name"],
        )
        for driver in sorted(self._store.problems):
            unsaved.add_metric([driver], 1)
        return [devices, ignored, unsaved]
