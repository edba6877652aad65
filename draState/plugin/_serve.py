"""Runs drivers in a process: signals, the web page, and one plugin for each driver."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterable

from ._driver import Driver
from ._plugin import Plugin
from ._settings import Settings, SettingsError
from ._web import WebServer

logger = logging.getLogger("draState.plugin")


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
