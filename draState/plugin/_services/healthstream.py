"""The DRAResourceHealth service: kubelet opens a stream and receives the health of the devices.

Each message is the complete list, made at the moment it is sent. So a client that reads slowly or not at all gets fewer
messages and never old ones: nothing is queued for it, and only its own stream waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from .._healthwatch import NUMBERS, HealthWatch
from .calls import logged_stream
from .draplugin import stream
from .wire import HEALTH_V1, HEALTH_V1ALPHA1, DRAResourceHealth, Handlers

TIMEOUT_SECONDS = 30  # kubelet treats a device without news for this long as unknown; also its default
HEARTBEAT_SECONDS = TIMEOUT_SECONDS / 3  # between messages if nothing changes; two of them may be late
MAX_MESSAGE = 1024  # characters; kubelet cuts longer ones


class HealthStreamService:
    """Any number of streams at once."""

    services = (HEALTH_V1.version, HEALTH_V1ALPHA1.version)  # for the registration

    def __init__(self, health: HealthWatch, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self._health = health
        self._heartbeat = heartbeat
        self._streams: set[asyncio.Task[Any]] = set()
        self._stopped = False

    def handlers(self) -> Handlers:
        """The call of both versions of the service, by path."""
        return {api.watch.path: stream(api.watch, self._watch(api)) for api in (HEALTH_V1, HEALTH_V1ALPHA1)}

    def stop(self) -> None:
        """End all streams. A client that does not read its stream notices when the socket closes."""
        self._stopped = True
        for task in self._streams:
            task.cancel()

    def _watch(self, api: DRAResourceHealth) -> Callable[[Any, Any], Any]:
        async def watch(request: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            task = asyncio.current_task()
            assert task, "the server runs each stream as a task"
            self._streams.add(task)
            try:
                with logged_stream(api.watch.path):
                    async for _ in self._news():
                        await context.write(self._reply(api))
            except asyncio.CancelledError:
                if not self._stopped:  # the client is gone
                    raise
            finally:
                self._streams.discard(task)

        return watch

    async def _news(self) -> AsyncIterator[None]:
        """Yields whenever there is something to send."""
        sent: object = None
        looked = 0.0
        while not self._stopped:
            findings, now = self._health.findings, self._health.looked
            # Without a new check there is no news; kubelet then notices that we are stuck.
            if findings != sent or now > looked:
                sent, looked = findings, now
                yield
            soonest = min((found.timeout / 3 for found in findings.values()), default=self._heartbeat)
            await self._health.changed(findings, min(self._heartbeat, soonest))

    def _reply(self, api: DRAResourceHealth) -> Any:
        reply = api.watch.reply()
        looked = int(self._health.looked)
        for (pool, name), finding in self._health.findings.items():
            reply.devices.add(
                device={"pool_name": pool, "device_name": name},
                health=NUMBERS[finding.health],
                last_updated_time=looked,
                health_check_timeout_seconds=int(finding.timeout),
                message=finding.message[:MAX_MESSAGE],
            )
        return reply
