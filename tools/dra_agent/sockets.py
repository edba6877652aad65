"""gRPC servers on unix sockets that appear and vanish in one step.

A server binds a name that starts with a dot, which kubelet's watcher passes over, and the socket gets its mode
before it is renamed to the name that others know. So a stale socket is replaced, never removed first, and what
gRPC unlinks when it ends is not the name that a successor may have taken meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from .settings import SettingsError

MAX_PATH = 107  # bytes: the kernel's limit for the path of a unix socket


class SocketServer:
    """One gRPC server with all the calls it answers, by path."""

    def __init__(self, path: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]) -> None:
        folder, name = os.path.split(path)
        self.path = path
        self._private = os.path.join(folder, f".{name}.{os.getpid()}")
        if len(os.fsencode(self._private)) > MAX_PATH:
            raise SettingsError(f"{self._private}: longer than {MAX_PATH} bytes, which is too long for a socket")
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((_Handlers(handlers),))
        self._identity: tuple[int, int] | None = None

    async def start(self) -> None:
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        self._sweep()
        self._server.add_insecure_port(f"unix:{self._private}")
        await self._server.start()
        os.chmod(self._private, 0o600)
        status = os.stat(self._private)
        self._identity = (status.st_dev, status.st_ino)
        os.rename(self._private, self.path)

    def _sweep(self) -> None:
        """Private names of processes that were killed before they could rename. Only the owner of the state is here."""
        folder, name = os.path.split(self.path)
        for stale in os.listdir(folder):
            if stale.startswith(f".{name}."):
                with suppress(OSError):
                    os.unlink(os.path.join(folder, stale))

    def in_place(self) -> bool:
        """False if somebody removed the socket, or put another in its place."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def vanish(self) -> None:
        """Nobody new finds it; who is connected is served on."""
        if self.in_place():
            with suppress(OSError):
                os.unlink(self.path)

    async def stop(self, grace: float) -> None:
        """Take no new calls and let those under way finish, for at most `grace` seconds."""
        self.vanish()
        await self._server.stop(grace)


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self._handlers.get(handler_call_details.method)
