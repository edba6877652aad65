"""Kubelet's calls to an agent that stands by: they wait until it owns the state, instead of failing.

In a rolling update kubelet calls the instance that registered last. Without this, a call between the end of the old
process and the registration of the new one would fail, and kubelet would repeat it more than a minute later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc

from .draplugin import stream, unary
from .wire import HEALTH_V1, HEALTH_V1ALPHA1, V1, V1BETA1, Handlers


class Door:
    """Closed at first. Calls that wait are answered as soon as it opens."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._handlers: Handlers = {}

    def handlers(self) -> Handlers:
        """For every call that kubelet may make to a registered plugin: a handler that waits, then passes it on."""
        methods = [method for api in (V1, V1BETA1) for method in (api.prepare, api.unprepare)]
        waiting = {method.path: unary(method, self._later(method.path)) for method in methods}
        streams = {
            api.watch.path: stream(api.watch, self._later(api.watch.path)) for api in (HEALTH_V1, HEALTH_V1ALPHA1)
        }
        return {**waiting, **streams}

    def open(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._opened.set()

    def shut(self) -> None:
        """Let go of the calls that wait: the agent stops."""
        self._opened.set()

    def _later(self, path: str) -> Callable[[Any, Any], Coroutine[Any, Any, Any]]:
        async def answer(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            await self._opened.wait()
            if path not in self._handlers:
                return await context.abort(grpc.StatusCode.UNAVAILABLE, "the agent stood by, and stops")
            handler: Any = self._handlers[path]
            return await (handler.unary_unary or handler.unary_stream)(request, context)

        return answer
