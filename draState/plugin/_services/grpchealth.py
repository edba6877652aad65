"""grpc.health.v1 on the plugin's socket: the health of the whole agent ("") and of each service that kubelet calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from .draplugin import stream, unary
from .wire import HEALTH_CHECK, HEALTH_V1, HEALTH_V1ALPHA1, HEALTH_WATCH, V1, V1BETA1

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
_PATHS = (V1.prepare.path, V1BETA1.prepare.path, HEALTH_V1.watch.path, HEALTH_V1ALPHA1.watch.path)
SERVICES = frozenset({"", V1.version, V1BETA1.version, *(path.split("/")[1] for path in _PATHS)})


class HealthService:
    """SERVING from the time the socket exists until the agent stops."""

    def __init__(self) -> None:
        self._status = SERVING
        self._changed = asyncio.Condition()

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        return {
            HEALTH_CHECK.path: unary(HEALTH_CHECK, self._check),
            HEALTH_WATCH.path: stream(HEALTH_WATCH, self._watch),
        }

    async def stop(self) -> None:
        """Report NOT_SERVING to all watching clients."""
        async with self._changed:
            self._status = NOT_SERVING
            self._changed.notify_all()

    async def _check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        if request.service not in SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r} here")
        return HEALTH_CHECK.reply(status=self._status)

    async def _watch(self, request: Any, context: object) -> AsyncIterator[Any]:
        if request.service not in SERVICES:
            yield HEALTH_WATCH.reply(status=SERVICE_UNKNOWN)  # the stream stays open: the service might appear
        else:
            yield HEALTH_WATCH.reply(status=self._status)
        async with self._changed:
            await self._changed.wait_for(lambda: self._status == NOT_SERVING)
        if request.service in SERVICES:
            yield HEALTH_WATCH.reply(status=self._status)
