"""Runs drivers in a process: signals, one plugin for each driver, and /healthz, /readyz and /metrics for all of them.

The pages run on the agent's own event loop: if the loop hangs, /healthz does not answer, as it should.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ._driver import Driver
from ._plugin import Plugin
from ._settings import Settings, SettingsError
from ._status import Status

logger = logging.getLogger("draState.plugin")

REQUEST_SECONDS = 10.0
STOP_SECONDS = 1.0  # for answers that are still being sent
MAX_REQUEST = 16 << 10  # bytes of request line and headers


def serve(drivers: Driver | Iterable[Driver], settings: Settings | None = None) -> None:
    """Serve these drivers until SIGTERM or SIGINT, then end in order.

    Registers them with kubelet, publishes their devices, answers for claims over v1 and v1beta1, and shows /healthz,
    /readyz and /metrics. A second process on the same node stands by and takes over when the first one ends.
    Raises SettingsError for settings that cannot work, and CheckpointError or OSError if the state cannot be used.
    """
    listed = [drivers] if isinstance(drivers, Driver) else list(drivers)
    settings = settings or Settings()
    if len(listed) > 1 and (settings.plugin_dir or settings.state_dir):
        raise SettingsError("each of several drivers needs folders of its own: give only --kubelet-dir")
    os.umask(0o077)  # state, sockets and temp files are for this user alone
    asyncio.run(_serve(listed, settings))


async def _serve(drivers: list[Driver], settings: Settings) -> None:
    plugins = [Plugin(driver, settings) for driver in drivers]
    web = WebServer(settings.address, {plugin.driver.name: (plugin.status, plugin.registry) for plugin in plugins})

    def stop() -> None:
        for plugin in plugins:
            plugin.stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    host, port = await web.start()
    logger.info("listening on http://%s:%d", host, port)
    try:
        running = [asyncio.create_task(plugin.run()) for plugin in plugins]
        await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        stop()  # if one has failed, the others end in order
        await asyncio.wait(running)
        for each in running:
            each.result()
    finally:
        await web.stop()
        logger.info("ended")


class WebServer:
    """Answers GET and HEAD, one request per connection."""

    def __init__(self, address: tuple[str, int], drivers: Mapping[str, tuple[Status, CollectorRegistry]]) -> None:
        """`drivers` has the status and the metrics of each driver, by its name."""
        self._address = address
        self._statuses = {name: status for name, (status, _) in drivers.items()}
        self._registry = _merged({name: registry for name, (_, registry) in drivers.items()})
        self._server: asyncio.Server | None = None

    async def start(self) -> tuple[str, int]:
        """Returns the address it listens on: with port 0 the kernel chooses one."""
        host, port = self._address
        self._server = await asyncio.start_server(self._answer, host, port, limit=MAX_REQUEST)
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def stop(self) -> None:
        if self._server:
            self._server.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), STOP_SECONDS)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, path = head.decode("latin-1").split(" ", 2)[:2]
                code, kind, body = await self._page(method, path.partition("?")[0])
                lines = [
                    f"HTTP/1.1 {code.value} {code.phrase}",
                    f"Content-Type: {kind}",
                    f"Content-Length: {len(body)}",
                    "Connection: close",
                ]
                writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body))
                await writer.drain()
        except (TimeoutError, ValueError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a request, or the client is gone
        finally:
            writer.close()

    async def _page(self, method: str, path: str) -> tuple[HTTPStatus, str, bytes]:
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET and HEAD\n"
        if path == "/metrics":
            text = await asyncio.to_thread(generate_latest, self._registry)  # it lists directories
            return HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", text
        if path == "/readyz":
            details = self._details()
            code = HTTPStatus.OK if details["ready"] else HTTPStatus.SERVICE_UNAVAILABLE
            return code, "application/json", json.dumps(details, indent=1).encode() + b"\n"
        if path == "/healthz":
            failure = "; ".join(status.failure for status in self._statuses.values() if status.failure)
            code = HTTPStatus.SERVICE_UNAVAILABLE if failure else HTTPStatus.OK
            return code, "text/plain", f"{failure or 'ok'}\n".encode()
        return HTTPStatus.NOT_FOUND, "text/plain", b"/healthz /readyz /metrics\n"

    def _details(self) -> dict[str, Any]:
        found = {name: status.details() for name, status in self._statuses.items()}
        if len(found) == 1:
            return next(iter(found.values()))
        return {"ready": all(each["ready"] for each in found.values()), "drivers": found}


class _Merged(Collector):
    """The metrics of several drivers, each with the driver's name as a label more."""

    def __init__(self, registries: Mapping[str, CollectorRegistry]) -> None:
        self._registries = registries

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for driver, registry in self._registries.items():
            for metric in registry.collect():
                family = families.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
                for sample in metric.samples:
                    family.samples.append(sample._replace(labels={**sample.labels, "driver": driver}))
        return families.values()


def _merged(registries: Mapping[str, CollectorRegistry]) -> CollectorRegistry:
    if len(registries) == 1:
        return next(iter(registries.values()))
    merged = CollectorRegistry()
    merged.register(_Merged(registries))
    return merged
