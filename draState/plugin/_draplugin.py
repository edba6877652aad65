"""Kubelet's calls to a plugin: it registers the plugin that it finds, and has claims prepared and unprepared.

What the calls cost and how they ended is in histograms under kubelet's own names, and in one log line per call.
`dra_operations_duration_seconds` shows whether a pod got what it needs: one call covers all claims of a pod, and it
failed if one of them did. `dra_grpc_operations_duration_seconds` shows whether the call itself succeeded. Kubelet
measures both from its side; a difference between the two is time spent in transit.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
from prometheus_client import CollectorRegistry, Histogram

from .. import ClaimRef
from ..aio import AsyncClaimPreparer
from ._log import CALL
from ._wire import GET_INFO, NOTIFY_STATUS, V1, V1BETA1, DRAPluginApi, Handlers

logger = logging.getLogger("draState.plugin")
call_logger = logging.getLogger("draState.plugin.calls")

# Seconds. Kubelet's fifteen buckets, from 0.1 to 40 in equal logarithmic steps, and finer ones below, because a claim
# is prepared in milliseconds here, and kubelet also counts what it does itself.
KUBELET_BUCKETS = tuple(round(0.1 * 400 ** (n / 14), 6) for n in range(15))
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, *KUBELET_BUCKETS)
OPERATIONS = {"NodePrepareResources": "PrepareResources", "NodeUnprepareResources": "UnprepareResources"}


class RegistrationService:
    """Shows what kubelet reports; kubelet itself tries again after an error."""

    def __init__(
        self, driver: str, endpoint: str, services: Iterable[str], on_registered: Callable[[], object]
    ) -> None:
        """`endpoint` is the path of the socket that has these `services`; of each, kubelet takes the newest it knows.

        `on_registered` is called each time kubelet registers us, including after its own restarts.
        """
        self.registered = False  # whether kubelet has registered us
        self.status = "kubelet has not called yet"  # what it said last, for people
        self._info = GET_INFO.reply(type="DRAPlugin", name=driver, endpoint=endpoint, supported_versions=services)
        self._on_registered = on_registered

    def handlers(self) -> Handlers:
        """The two calls of the service, by path."""
        return {
            GET_INFO.path: GET_INFO.unary(self._get_info),
            NOTIFY_STATUS.path: NOTIFY_STATUS.unary(self._notify_status),
        }

    async def _get_info(self, request: object, context: object) -> Any:
        return self._info

    async def _notify_status(self, request: Any, context: object) -> Any:
        self.registered = request.plugin_registered
        if self.registered:
            self.status = "registered"
            logger.info("registered with kubelet")
            self._on_registered()
        else:
            self.status = f"kubelet refused: {request.error}"
            logger.error("kubelet refused the registration: %s", request.error)
        return NOTIFY_STATUS.reply()


class PluginService:
    """Every claim of a request has an entry in the reply, with its devices or its own error."""

    services = (V1.version, V1BETA1.version)  # for the registration

    def __init__(self, preparer: AsyncClaimPreparer, registry: CollectorRegistry | None = None) -> None:
        """`registry` is for the metrics of the calls."""
        self._preparer = preparer
        self._calls = Calls(preparer.preparer.hooks.driver, registry)

    def handlers(self) -> Handlers:
        """The two calls of both versions of the service, by path."""
        return {**self._handlers(V1), **self._handlers(V1BETA1)}

    def _handlers(self, api: DRAPluginApi) -> Handlers:
        async def prepare(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            remaining = context.time_remaining()
            deadline = None if remaining is None else time.monotonic() + remaining
            refs = _refs(request)
            reply = api.prepare.reply()
            with self._calls.call(api.prepare.path, refs) as failed:
                answers = await self._preparer.prepare(refs, deadline=deadline)
                failed += [uid for uid, answer in answers.items() if answer.error]
            for uid, answer in answers.items():
                reply.claims[uid].error = answer.error
                for device in answer.devices:
                    reply.claims[uid].devices.add(
                        request_names=device.request_names,
                        pool_name=device.pool_name,
                        device_name=device.device_name,
                        cdi_device_ids=device.cdi_device_ids,
                        share_id=device.share_id,
                    )
            return reply

        async def unprepare(request: Any, _: object) -> Any:
            refs = _refs(request)
            reply = api.unprepare.reply()
            with self._calls.call(api.unprepare.path, refs) as failed:
                errors = await self._preparer.unprepare(refs)
                failed += [uid for uid, error in errors.items() if error]
            for uid, error in errors.items():
                reply.claims[uid].error = error
            return reply

        return {api.prepare.path: api.prepare.unary(prepare), api.unprepare.path: api.unprepare.unary(unprepare)}


def _refs(request: Any) -> list[ClaimRef]:
    return [ClaimRef(claim.uid, claim.name, claim.namespace) for claim in request.claims]


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
    def call(self, path: str, refs: Iterable[ClaimRef]) -> Iterator[list[str]]:
        """One call, by its gRPC path. Add the UIDs of the claims that failed to the list."""
        method, claims, failed = path.rpartition("/")[2], _listed(ref.uid for ref in refs), list[str]()
        started, status, call = time.perf_counter(), "Unknown", secrets.token_hex(4)
        token = CALL.set(call)
        call_logger.debug("call %s: %s of %s begins", call, method, claims)
        try:
            yield failed
            status = "OK"
        except asyncio.CancelledError:
            status = "Canceled"
            raise
        finally:
            seconds = time.perf_counter() - started
            self._operations.labels(OPERATIONS[method], str(status != "OK" or bool(failed)).lower()).observe(seconds)
            self._grpc.labels(self._driver, path, status).observe(seconds)
            outcome = f"{status}, failed: {_listed(failed)}" if failed else status
            call_logger.info("call %s: %s of %s: %s, %.3f s", call, method, claims, outcome, seconds)
            CALL.reset(token)


@contextmanager
def logged_stream(path: str) -> Iterator[None]:
    """Log when a stream, by its gRPC path, begins and ends."""
    method, stream, started = path.rpartition("/")[2], secrets.token_hex(4), time.perf_counter()
    CALL.set(stream)  # for its task, which ends with it
    call_logger.info("stream %s: %s begins", stream, method)
    try:
        yield
    finally:
        call_logger.info("stream %s: %s ends after %.0f s", stream, method, time.perf_counter() - started)


def _listed(uids: Iterable[str]) -> str:
    return ", ".join(uids) or "no claims"
