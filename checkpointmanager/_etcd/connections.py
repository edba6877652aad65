"""The connections to all members, made with the certificates as they were on disk at one moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc

from .endpoints import Credentials
from .wire import LEASE_KEEP_ALIVE, WATCH, Method

MAX_REPLY_BYTES = 256 << 20
PING_SECONDS = 10.0  # between pings while a call waits for an answer; etcd allows one every 5 s
PONG_SECONDS = 5.0  # until a member that does not answer a ping is given up


class Connections:
    """One channel per member. Nothing is connected before the first call."""

    def __init__(self, addresses: Sequence[str], credentials: Credentials, *, tls: bool) -> None:
        options = _options()
        if tls:
            ca, cert, key = credentials.contents()
            made = grpc.ssl_channel_credentials(ca, private_key=key, certificate_chain=cert)
            self._channels = [grpc.secure_channel(address, made, options) for address in addresses]
        else:
            self._channels = [grpc.insecure_channel(address, options) for address in addresses]
        self._stubs: dict[tuple[int, str], Any] = {}

    def stub(self, member: int, method: Method) -> Callable[..., Any]:
        found = self._stubs.get((member, method.path))
        if found is None:
            channel = self._channels[member]
            kind = channel.stream_stream if method in (LEASE_KEEP_ALIVE, WATCH) else channel.unary_unary
            found = kind(method.path, method.request.SerializeToString, method.reply.FromString)
            self._stubs[member, method.path] = found
        return found

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


def _options() -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", MAX_REPLY_BYTES),
        ("grpc.use_local_subchannel_pool", 1),  # share no connection, and so no certificate, with other users of gRPC
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),  # use a restarted member again soon
        ("grpc.keepalive_time_ms", int(PING_SECONDS * 1000)),
        ("grpc.keepalive_timeout_ms", int(PONG_SECONDS * 1000)),  # of old versions; new ones use the next
        ("grpc.http2.ping_timeout_ms", int(PONG_SECONDS * 1000)),
        ("grpc.http2.max_pings_without_data", 0),  # without a limit: a watch sends no data
    ]
