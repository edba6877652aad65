"""The Registration service: kubelet finds the socket, asks which plugin it has, and reports if it has registered it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from .draplugin import unary
from .wire import GET_INFO, NOTIFY_STATUS, Handlers

logger = logging.getLogger("draState.plugin")


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
            GET_INFO.path: unary(GET_INFO, self._get_info),
            NOTIFY_STATUS.path: unary(NOTIFY_STATUS, self._notify_status),
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
