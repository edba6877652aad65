"""Metrics for Prometheus, in the extra [metrics]. One line registers them:

    manager = CheckpointManager("/var/lib/agent/leases", LEASES, metrics=CheckpointMetrics())

The write path only increments plain numbers; series are built when Prometheus scrapes. Metrics that checkpoint-verify
also writes for node_exporter have the same names there. No label contains a key.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ._errors import CheckpointError, CheckpointWriteFailed
from ._events import Event, EventKind
from ._store import Put, Remove, Store
from .format import Reason

__all__ = ["CheckpointMetrics"]

# Seconds. From a sync answered by a battery-backed cache to a disk that is about to fail.
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

COUNTERS = {
    "writes": "Checkpoints written durably.",
    "written_bytes": "Bytes of the checkpoints that were written.",
    "removals": "Checkpoints removed.",
    "unchanged_writes": "Writes that found nothing to change, and so wrote nothing.",
    "write_failures": "Writes and removals that failed and left the old content in place.",
    "writes_in_doubt": "Writes and removals that may not survive a power loss.",
    "recoveries": "Damaged checkpoints that were repaired or rolled back.",
    "quarantines": "Damaged checkpoints whose bytes were copied to quarantine.",
    "schema_mismatches": "Times an intact checkpoint was found that the program cannot use.",
    "slow_syncs": "Commits in which the disk took more than a second to sync.",
}
HISTOGRAMS = {
    "write_seconds": "From the first system call of a commit to its acknowledgement.",
    "sync_seconds": "The slowest sync of each commit.",
    "settle_seconds": "Time in which a settle of the journal made all changes wait.",
    "lock_wait_seconds": "Time a change waited for the locks of its keys and, with sharing, of the directory.",
}
_COUNTED_EVENTS = {
    EventKind.RECOVERED: "recoveries",
    EventKind.ROLLED_BACK: "recoveries",
    EventKind.QUARANTINED: "quarantines",
    EventKind.SLOW_SYNC: "slow_syncs",
    EventKind.SCHEMA_MISMATCH: "schema_mismatches",
}


class CheckpointMetrics(Collector):
    """A MetricsSink and a Prometheus collector. One may serve many managers, with the directory as a label."""

    def __init__(self, registry: CollectorRegistry | None = REGISTRY) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler may use a manager while its thread holds it
        self._directories: dict[str, _Directory] = {}  # guarded by _lock, including the contents
        if registry:
            registry.register(self)

    def opened(self, store: Store) -> None:
        with self._lock:
            self._of(store.path).store = store

    def happened(self, directory: str, event: Event) -> None:
        with self._lock:
            figures = self._of(directory)
            if name := _COUNTED_EVENTS.get(event.kind):
                figures.counts[name] += 1
            if event.kind is EventKind.DAMAGE and event.reason:
                figures.damage[event.reason] += 1
                figures.damaged[event.key] = event.reason
            if event.kind in (EventKind.RECOVERED, EventKind.ROLLED_BACK):
                figures.damaged.pop(event.key, None)

    def waited(self, directory: str, seconds: float) -> None:
        with self._lock:
            self._of(directory).times["lock_wait_seconds"].observe(seconds)

    def unchanged(self, directory: str) -> None:
        with self._lock:
            self._of(directory).counts["unchanged_writes"] += 1

    def committed(
        self,
        directory: str,
        changes: Sequence[Put | Remove],
        failures: Mapping[str, CheckpointWriteFailed],
        seconds: float,
    ) -> None:
        if not changes:
            return
        with self._lock:
            figures = self._of(directory)
            counts = figures.counts
            for change in changes:
                if change.key in failures:
                    continue
                figures.damaged.pop(change.key, None)
                if isinstance(change, Put):
                    counts["writes"] += 1
                    counts["written_bytes"] += len(change.blob)
                else:
                    counts["removals"] += 1
            for failure in failures.values():
                counts["writes_in_doubt" if failure.in_doubt else "write_failures"] += 1
            figures.times["write_seconds"].observe(seconds)

    def synced(self, directory: str, seconds: float) -> None:
        with self._lock:
            self._of(directory).times["sync_seconds"].observe(seconds)

    def settled(self, directory: str, seconds: float) -> None:
        with self._lock:
            self._of(directory).times["settle_seconds"].observe(seconds)

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            directories = sorted(self._directories.items())
            families = [*_counters(directories), *_histograms(directories), *_damage(directories)]
        yield from families
        yield from _gauges([(path, figures.store) for path, figures in directories if figures.store is not None])

    def _of(self, directory: str) -> _Directory:
        figures = self._directories.get(directory)
        if figures is None:
            figures = self._directories[directory] = _Directory()
        return figures


class _Histogram:
    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as Prometheus wants them."""
        total = 0
        listed = []
        for limit, count in zip([*map(str, BUCKETS), "+Inf"], self._counts, strict=True):
            total += count
            listed.append((limit, float(total)))
        return listed


class _Directory:
    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTERS, 0)
        self.times = {name: _Histogram() for name in HISTOGRAMS}
        self.damage: Counter[Reason] = Counter()
        self.damaged: dict[str, Reason] = {}  # by key, as last seen
        self.store: Store | None = None


_Directories = Sequence[tuple[str, _Directory]]


def _counters(directories: _Directories) -> Iterator[Metric]:
    for name, text in COUNTERS.items():
        counter = CounterMetricFamily(f"checkpointmanager_{name}", text, labels=["directory"])
        for path, figures in directories:
            counter.add_metric([path], figures.counts[name])
        yield counter


def _histograms(directories: _Directories) -> Iterator[Metric]:
    for name, text in HISTOGRAMS.items():
        histogram = HistogramMetricFamily(f"checkpointmanager_{name}", text, labels=["directory"])
        for path, figures in directories:
            histogram.add_metric([path], figures.times[name].buckets(), figures.times[name].sum)
        yield histogram


def _damage(directories: _Directories) -> Iterator[Metric]:
    seen = CounterMetricFamily(
        "checkpointmanager_damage", "Times a damaged checkpoint was found, by reason.", labels=["directory", "reason"]
    )
    now = GaugeMetricFamily(
        "checkpointmanager_damaged",
        "State files that cannot be trusted, by reason.",
        labels=["directory", "reason"],
    )
    unreadable = GaugeMetricFamily(
        "checkpointmanager_unreadable", "State files that could not be read.", labels=["directory"]
    )
    for path, figures in directories:
        reasons = Counter(figures.damaged.values())
        unreadable.add_metric([path], reasons.pop(Reason.UNREADABLE, 0))
        for reason in Reason:
            seen.add_metric([path, reason.value], figures.damage[reason])
            if reason is not Reason.UNREADABLE:
                now.add_metric([path, reason.value], reasons[reason])
    yield from (seen, now, unreadable)


def _gauges(stores: Sequence[tuple[str, Store]]) -> Iterator[Metric]:
    """Figures that need a listing of the directory; closed stores are left out."""
    present = GaugeMetricFamily(
        "checkpointmanager_checkpoints", "State files found, good or not.", labels=["directory"]
    )
    kept = GaugeMetricFamily(
        "checkpointmanager_quarantined", "Copies of damaged files in quarantine.", labels=["directory"]
    )
    for path, store in stores:
        try:
            checkpoints, copies = len(store.keys()), sum(map(len, store.quarantined().values()))
        except CheckpointError:
            continue
        present.add_metric([path], checkpoints)
        kept.add_metric([path], copies)
    yield from (present, kept)
