"""Figures of a ClaimInfoCache for Prometheus, of the extra [metrics], under the names that kubelet uses.

ClaimMetrics(cache)    # registers itself
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ._claimcache import ClaimInfoCache

__all__ = ["ClaimMetrics"]

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
