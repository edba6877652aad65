"""gRPC servers on unix sockets.

A socket is bound under its final name, and nothing else ever appears beside it: kubelet looks at every new name in its
registry. A rename from another folder is impossible, because in a pod each hostPath is a separate mount. gRPC removes
a stale socket before it binds, and when it stops, it removes whatever has that path then, which may be the socket of
a successor. So gRPC gets a path through a descriptor of the folder, which is invalid once the descriptor is closed,
and the socket is removed here, if it is still the same one.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from ._wire import HEALTH_V1, HEALTH_V1ALPHA1, V1, V1BETA1, Handlers

FLUSH_SECONDS = 0.5  # for answers and ends of streams that are still being sent
MAX_PATH = 107  # bytes: the kernel's limit, which also applies to clients such as kubelet


class SocketServer:
    """One gRPC server. `handlers` has all the calls that it answers, by path, and is read at each call. `mode` is for
    the folder, if it has to be made.
    """

    def __init__(self, path: str, handlers: Handlers, mode: int = 0o700) -> None:
        self.path = path
        self._mode = mode
        self._calls = _Calls(handlers)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self._calls,))
        self._identity: tuple[int, int] | None = None

    async def start(self) -> None:
        """Make the socket; once is enough."""
        if self._identity:
            return
        folder, name = os.path.split(self.path)
        make_folder(folder, self._mode)
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._server.add_insecure_port(f"unix:/proc/self/fd/{descriptor}/{name}")
        finally:
            os.close(descriptor)
        os.chmod(self.path, 0o600)
        status = os.stat(self.path)
        self._identity = (status.st_dev, status.st_ino)
        await self._server.start()

    def in_place(self) -> bool:
        """False if the socket was removed or replaced."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    async def stop(self, grace: float) -> None:
        """Take no new calls and let those under way finish, for at most `grace` seconds.

        Streams end by themselves or are cut off: a stream whose client does not read would take all of that time.
        """
        if not self._identity:
            return
        if self.in_place():
            with suppress(OSError):
                os.unlink(self.path)
        stopping = asyncio.create_task(self._server.stop(grace))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._calls.none.wait(), grace)
        await asyncio.wait({stopping}, timeout=FLUSH_SECONDS)
        await self._server.stop(0)
        await stopping


class Door:
    """Kubelet's calls to an agent that stands by: they wait until it owns the state, instead of failing.

    In a rolling update kubelet calls the instance that registered last. Without this, a call between the end of the old
    process and the registration of the new one would fail, and kubelet would repeat it more than a minute later.
    """

    def __init__(self) -> None:
        methods = [method for api in (V1, V1BETA1) for method in (api.prepare, api.unprepare)]
        streams = [api.watch for api in (HEALTH_V1, HEALTH_V1ALPHA1)]
        self._opened = asyncio.Event()
        self._inside: Handlers = {}
        self.handlers: dict[str, Any] = {  # of every call that kubelet may make to a registered plugin
            **{method.path: method.unary(self._later(method.path)) for method in methods},
            **{method.path: method.stream(self._later(method.path)) for method in streams},
        }

    def open(self, handlers: Handlers) -> None:
        self._inside = handlers
        self.handlers.update(handlers)
        self._opened.set()

    def shut(self) -> None:
        """Let go of the calls that wait: the agent stops."""
        self._opened.set()

    def _later(self, path: str) -> Callable[[Any, Any], Coroutine[Any, Any, Any]]:
        async def answer(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            await self._opened.wait()
            if path not in self._inside:
                return await context.abort(grpc.StatusCode.UNAVAILABLE, "the agent stood by, and stops")
            handler: Any = self._inside[path]
            return await (handler.unary_unary or handler.unary_stream)(request, context)

        return answer


def make_folder(path: str, mode: int) -> None:
    """Make the folder and its missing parents with this mode, whatever the umask is.

    An existing folder may be in use: its mode is not touched.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        make_folder(parent, mode)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return  # another process was faster
    os.chmod(path, mode)


def remove_dead(folder: str, pattern: str) -> None:
    """Remove sockets that nobody listens on: a killed process cannot, and kubelet would go on trying."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in fnmatch.filter(os.listdir(folder), pattern):
            with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1)  # a standby that is busy is alive
                try:
                    client.connect(f"/proc/self/fd/{descriptor}/{name}")
                except ConnectionRefusedError:
                    os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


class _Calls(grpc.GenericRpcHandler):
    """Counts the running calls that end by themselves: all but streams."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._under_way = 0
        self.none = asyncio.Event()
        self.none.set()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = self._handlers.get(handler_call_details.method)
        answer: Any = handler and handler.unary_unary
        if not handler or answer is None:
            return handler

        async def counted(request: Any, context: Any) -> Any:
            self._under_way += 1
            self.none.clear()
            try:
                return await answer(request, context)
            finally:
                self._under_way -= 1
                if not self._under_way:
                    self.none.set()

        return grpc.unary_unary_rpc_method_handler(counted, handler.request_deserializer, handler.response_serializer)
