"""The DRAPlugin service: kubelet's calls on one side, the preparer on the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
from prometheus_client import CollectorRegistry

from checkpointmanager.aio import KeyedThreadsClosed

from ... import ClaimRef, PrepareResult
from ...aio import AsyncClaimPreparer
from .calls import Calls
from .wire import V1, V1BETA1, DRAPluginApi, Handlers, Method


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
            refs = [_ref(claim) for claim in request.claims]
            reply = api.prepare.reply()
            with self._calls.call(api.prepare.path, (ref.uid for ref in refs)) as call:
                answers = await asyncio.gather(*(self._prepare(ref, deadline) for ref in refs))
                call.failed += [ref.uid for ref, answer in zip(refs, answers, strict=True) if answer.error]
            for ref, prepared in zip(refs, answers, strict=True):
                reply.claims[ref.uid].CopyFrom(_prepared(api, prepared))
            return reply

        async def unprepare(request: Any, _: object) -> Any:
            refs = [_ref(claim) for claim in request.claims]
            reply = api.unprepare.reply()
            with self._calls.call(api.unprepare.path, (ref.uid for ref in refs)) as call:
                errors = await asyncio.gather(*map(self._unprepare, refs))
                call.failed += [ref.uid for ref, error in zip(refs, errors, strict=True) if error]
            for ref, error in zip(refs, errors, strict=True):
                reply.claims[ref.uid].error = error
            return reply

        return {
            api.prepare.path: unary(api.prepare, prepare),
            api.unprepare.path: unary(api.unprepare, unprepare),
        }

    async def _prepare(self, ref: ClaimRef, deadline: float | None) -> PrepareResult:
        try:
            return (await self._preparer.prepare([ref], deadline=deadline))[ref.uid]
        except KeyedThreadsClosed as error:
            return PrepareResult(error=str(error))

    async def _unprepare(self, ref: ClaimRef) -> str:
        try:
            return (await self._preparer.unprepare([ref]))[ref.uid]
        except KeyedThreadsClosed as error:
            return str(error)


def unary(method: Method, answer: Callable[[Any, Any], Any]) -> grpc.RpcMethodHandler[Any, Any]:
    """A call with one request and one reply."""
    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=method.request.FromString, response_serializer=method.reply.SerializeToString
    )


def stream(method: Method, answers: Callable[[Any, Any], Any]) -> grpc.RpcMethodHandler[Any, Any]:
    """A call with one request and replies until it ends."""
    return grpc.unary_stream_rpc_method_handler(
        answers, request_deserializer=method.request.FromString, response_serializer=method.reply.SerializeToString
    )


def _ref(claim: Any) -> ClaimRef:
    return ClaimRef(claim.uid, claim.name, claim.namespace)


def _prepared(api: DRAPluginApi, prepared: PrepareResult) -> Any:
    reply = api.PrepareResult(error=prepared.error)
    for device in prepared.devices:
        entry = reply.devices.add(
            request_names=device.request_names,
            pool_name=device.pool_name,
            device_name=device.device_name,
            cdi_device_ids=device.cdi_device_ids,
        )
        if device.share_id is not None:
            entry.share_id = device.share_id
    return reply
