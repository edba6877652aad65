"""What kubelet's calls cost and how they ended: histograms under kubelet's own names, and a log line per call.

`dra_operations_duration_seconds` shows whether a pod got what it needs: one call covers all claims of a pod, and it
failed if one of them did. `dra_grpc_operations_duration_seconds` shows whether the call itself succeeded. Kubelet
measures both from its side; a difference between the two is time spent in transit.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Histogram

from .._log import CALL

logger = logging.getLogger("draState.plugin.calls")

# Seconds. Kubelet's fifteen buckets, from 0.1 to 40 in equal logarithmic steps, and finer ones below, because a claim
# is prepared in milliseconds here, and kubelet also counts what it does itself.
KUBELET_BUCKETS = tuple(round(0.1 * 400 ** (n / 14), 6) for n in range(15))
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, *KUBELET_BUCKETS)
OPERATIONS = {"NodePrepareResources": "PrepareResources", "NodeUnprepareResources": "UnprepareResources"}


@dataclass(slots=True)
class Call:
    """One call under way; `failed` has the UIDs of the claims that failed."""

    method: str
    uids: tuple[str, ...]
    failed: list[str] = field(default_factory=list)
    id: str = field(default_factory=lambda: secrets.token_hex(4))  # in each log line about this call


class Calls:
    """Measures and logs the calls of one driver."""

    def __init__(self, driver: str, registry: CollectorRegistry | None) -> None:
        self._driver = driver
        self._operations = Histogram(
            "dra_operations_duration_seconds",
            "Latency in seconds of handling all ResourceClaims of a pod for this driver, "
            "by operation and whether one of them failed.",
            ["operation_name", "is_error"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._grpc = Histogram(
            "dra_grpc_operations_duration_seconds",
            "Duration in seconds of the DRA gRPC operations, by method and status code of the call.",
            ["driver_name", "method_name", "grpc_status_code"],
            buckets=BUCKETS,
            registry=registry,
        )

    @contextmanager
    def call(self, path: str, uids: Iterable[str]) -> Iterator[Call]:
        """One call, by its gRPC path."""
        call = Call(path.rpartition("/")[2], tuple(uids))
        token = CALL.set(call.id)
        started, status = time.perf_counter(), "Unknown"
        logger.debug("call %s: %s of %s begins", call.id, call.method, _listed(call.uids))
        try:
            yield call
            status = "OK"
        except asyncio.CancelledError:
            status = "Canceled"
            raise
        finally:
            seconds = time.perf_counter() - started
            failed = status != "OK" or bool(call.failed)
            self._operations.labels(OPERATIONS[call.method], str(failed).lower()).observe(seconds)
            self._grpc.labels(self._driver, path, status).observe(seconds)
            outcome = status if not call.failed else f"{status}, failed: {_listed(call.failed)}"
            logger.info("call %s: %s of %s: %s, %.3f s", call.id, call.method, _listed(call.uids), outcome, seconds)
            CALL.reset(token)


@contextmanager
def logged_stream(path: str) -> Iterator[None]:
    """Log when a stream, by its gRPC path, begins and ends."""
    stream = Call(path.rpartition("/")[2], ())
    CALL.set(stream.id)  # for its task, which ends with it
    started = time.perf_counter()
    logger.info("stream %s: %s begins", stream.id, stream.method)
    try:
        yield
    finally:
        logger.info("stream %s: %s ends after %.0f s", stream.id, stream.method, time.perf_counter() - started)


def _listed(uids: Iterable[str]) -> str:
    return ", ".join(uids) or "no claims"
