"""How the servers are reached: their addresses, certificates, a login, and the connections made with them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import grpc

from .._errors import CheckpointError
from .errors import Refused
from .wire import LEASE_KEEP_ALIVE, WATCH, Method

Path = str | os.PathLike[str]

MAX_REPLY_BYTES = 256 << 20
PING_SECONDS = 10.0  # between pings while a call waits for an answer; etcd allows one every 5 s
PONG_SECONDS = 5.0  # until a member that does not answer a ping is given up


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM files and a login, all optional. The password never prints."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: Path | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("a client certificate is two files: give cert and key, or neither")
        if bool(self.user) != bool(self.password or self.password_file) or (self.password and self.password_file):
            raise ValueError("user and password belong together: give both or neither, and the password once")

    def secret(self) -> str:
        """The password: from its file, if there is one, as it is now. Raises Refused if it cannot be read."""
        if self.password_file is None:
            return self.password
        try:
            return (_contents(self.password_file) or b"").decode().rstrip("\r\n")
        except (CheckpointError, UnicodeDecodeError) as error:
            raise Refused(errno.EACCES, f"{os.fspath(self.password_file)}: the password cannot be read") from error

    def contents(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """The bytes of ca, cert and key. Raises CheckpointError with the name of a file that cannot be read."""
        return _contents(self.ca), _contents(self.cert), _contents(self.key)

    def version(self) -> object:
        """Compares equal until one of the files is replaced or rewritten."""
        return [_version(path) for path in (self.ca, self.cert, self.key) if path is not None]


class Connections:
    """One channel per member, with the certificates as they are on disk now. Connects at the first call."""

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


def addresses(endpoints: Sequence[str], credentials: Credentials) -> tuple[list[str], bool]:
    """(host:port of each, whether TLS is spoken), or ValueError."""
    if isinstance(endpoints, str) or not endpoints:
        raise ValueError("endpoints is a list of URLs such as ['http://127.0.0.1:2379'], with one at least")
    found = []
    schemes = set()
    for endpoint in endpoints:
        scheme, address = _parts(endpoint)
        schemes.add(scheme)
        found.append(address)
    if len(schemes) > 1:
        raise ValueError("endpoints: all of them http, or all of them https")
    tls = schemes == {"https"}
    if (credentials.ca or credentials.cert) and not tls:
        raise ValueError("certificates were given, but the endpoints are http: write https://HOST:PORT")
    return found, tls


def _parts(endpoint: str) -> tuple[str, str]:
    """Its scheme and host:port."""
    try:
        parts = urlsplit(endpoint)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port and "@" not in parts.netloc
        if is_address and not (parts.path.strip("/") or parts.query or parts.fragment):
            return parts.scheme, parts.netloc
    except (ValueError, TypeError, AttributeError):  # no number after the colon, half an IPv6 address, not a str
        pass
    shown = "" if "@" in str(endpoint) else f" {endpoint!r}"  # no password in an error
    raise ValueError(f"endpoint{shown}: write http://HOST:PORT or https://HOST:PORT")


def _contents(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error.strerror}; it is needed to reach etcd") from error


def _version(path: Path) -> object:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_ino, status.st_size, status.st_ctime_ns


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
