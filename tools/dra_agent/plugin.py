"""The DRAPlugin service: kubelet's calls on one side, the preparer on the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
from prometheus_client import CollectorRegistry, Histogram

from checkpointmanager.aio import KeyedThreadsClosed
from draState import ClaimRef, Prepared
from draState.aio import AsyncClaimPreparer

from .wire import DRAPlugin, Method

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


class PluginService:
    """Every claim of a request has an entry in the reply, with its devices or its own error."""

    def __init__(self, preparer: AsyncClaimPreparer, registry: CollectorRegistry) -> None:
        self._preparer = preparer
        self._seconds = Histogram(
            "dra_agent_operation_seconds",
            "What kubelet waited for a claim, by operation and whether it succeeded.",
            ["operation", "is_error"],
            buckets=BUCKETS,
            registry=registry,
        )

    def handlers(self, api: DRAPlugin) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """The two calls of one version of the service, by path."""

        async def prepare(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            remaining = context.time_remaining()
            deadline = None if remaining is None else time.monotonic() + remaining
            refs = [_ref(claim) for claim in request.claims]
            answers = await asyncio.gather(*(self._prepare(ref, deadline) for ref in refs))
            reply = api.prepare.reply()
            for ref, prepared in zip(refs, answers, strict=True):
                reply.claims[ref.uid].CopyFrom(_prepared(api, prepared))
            return reply

        async def unprepare(request: Any, _: object) -> Any:
            refs = [_ref(claim) for claim in request.claims]
            errors = await asyncio.gather(*map(self._unprepare, refs))
            reply = api.unprepare.reply()
            for ref, error in zip(refs, errors, strict=True):
                reply.claims[ref.uid].error = error
            return reply

        return {
            api.prepare.path: unary(api.prepare, prepare),
            api.unprepare.path: unary(api.unprepare, unprepare),
        }

    async def _prepare(self, ref: ClaimRef, deadline: float | None) -> Prepared:
        started = time.perf_counter()
        try:
            prepared = (await self._preparer.prepare([ref], deadline=deadline))[ref.uid]
        except KeyedThreadsClosed as error:
            prepared = Prepared(error=str(error))
        self._observe("prepare", prepared.error, started)
        return prepared

    async def _unprepare(self, ref: ClaimRef) -> str:
        started = time.perf_counter()
        try:
            error = (await self._preparer.unprepare([ref]))[ref.uid]
        except KeyedThreadsClosed as closed:
            error = str(closed)
        self._observe("unprepare", error, started)
        return error

    def _observe(self, operation: str, error: str, started: float) -> None:
        self._seconds.labels(operation, str(bool(error)).lower()).observe(time.perf_counter() - started)


def unary(method: Method, answer: Callable[[Any, Any], Any]) -> grpc.RpcMethodHandler[Any, Any]:
    """A call with one request and one reply."""
    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=method.request.FromString, response_serializer=method.reply.SerializeToString
    )


def _ref(claim: Any) -> ClaimRef:
    return ClaimRef(claim.uid, claim.name, claim.namespace)


def _prepared(api: DRAPlugin, prepared: Prepared) -> Any:
    reply = api.Prepared(error=prepared.error)
    for device in prepared.devices:
        told = reply.devices.add(
            request_names=device.request_names,
            pool_name=device.pool_name,
            device_name=device.device_name,
            cdi_device_ids=device.cdi_device_ids,
        )
        if device.share_id is not None:
            told.share_id = device.share_id
    return reply
