"""How the servers are reached: their addresses, certificates, and who we say we are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import grpc

from .._errors import CheckpointError

MAX_REPLY_BYTES = 256 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REPLY_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # nobody else's connections, nor their certificates
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),  # a member that restarts is used again soon
)

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM files and a login, all optional. The password never prints."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str = ""
    password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("a client certificate is two files: give cert and key, or neither")
        if bool(self.user) != bool(self.password):
            raise ValueError("user and password belong together: give both, or neither")

    @property
    def is_tls(self) -> bool:
        return self.ca is not None or self.cert is not None


def addresses(endpoints: Sequence[str], credentials: Credentials) -> tuple[list[str], bool]:
    """(host:port of each, whether TLS is spoken), or ValueError."""
    if isinstance(endpoints, str) or not endpoints:
        raise ValueError("endpoints is a list of URLs such as ['http://127.0.0.1:2379'], with one at least")
    found = []
    schemes = set()
    for endpoint in endpoints:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port is None or parts.username:
            shown = "" if "@" in endpoint else f" {endpoint!r}"  # no password in an error
            raise ValueError(f"endpoint{shown}: write http://HOST:PORT or https://HOST:PORT")
        schemes.add(parts.scheme)
        found.append(parts.netloc)
    if len(schemes) > 1:
        raise ValueError("endpoints: all of them http, or all of them https")
    tls = schemes == {"https"}
    if credentials.is_tls and not tls:
        raise ValueError("certificates were given, but the endpoints are http: write https://HOST:PORT")
    return found, tls


def channels(found: Sequence[str], credentials: Credentials, *, tls: bool) -> list[grpc.Channel]:
    """One per member. Nothing is connected before the first call."""
    if not tls:
        return [grpc.insecure_channel(address, _OPTIONS) for address in found]
    made = grpc.ssl_channel_credentials(
        _contents(credentials.ca), private_key=_contents(credentials.key), certificate_chain=_contents(credentials.cert)
    )
    return [grpc.secure_channel(address, made, _OPTIONS) for address in found]


def _contents(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error.strerror}; it is needed to reach etcd") from error
