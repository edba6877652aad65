"""The Registration service: kubelet finds the socket, asks which plugin it has, and reports if it has registered it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import grpc

from .plugin import unary
from .settings import Settings
from .status import Status
from .wire import GET_INFO, HEALTH_V1, HEALTH_V1ALPHA1, NOTIFY_STATUS, V1, V1BETA1

logger = logging.getLogger("dra_agent")

SERVICES = (V1, V1BETA1, HEALTH_V1, HEALTH_V1ALPHA1)  # of each kind, kubelet takes the newest that it knows


class RegistrationService:
    """The status shows what kubelet reports; kubelet itself tries again after an error."""

    def __init__(self, settings: Settings, status: Status, on_registered: Callable[[], object]) -> None:
        """`on_registered` is called each time kubelet registers us, including after its own restarts."""
        self._settings = settings
        self._status = status
        self._on_registered = on_registered

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        return {
            GET_INFO.path: unary(GET_INFO, self._get_info),
            NOTIFY_STATUS.path: unary(NOTIFY_STATUS, self._notify_status),
        }

    async def _get_info(self, request: object, context: object) -> Any:
        return GET_INFO.reply(
            type="DRAPlugin",
            name=self._settings.devices.current.driver,
            endpoint=self._settings.dra_socket,
            supported_versions=[service.version for service in SERVICES],
        )

    async def _notify_status(self, request: Any, context: object) -> Any:
        self._status.registered = request.plugin_registered
        if request.plugin_registered:
            self._status.registration = "registered"
            logger.info("registered with kubelet")
            self._on_registered()
        else:
            self._status.registration = f"kubelet refused: {request.error}"
            logger.error("kubelet refused the registration: %s", request.error)
        return NOTIFY_STATUS.reply()
