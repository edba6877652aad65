"""What is needed to reach the servers: their addresses, certificates, and a login."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .._errors import CheckpointError
from .faults import Refused

Path = str | os.PathLike[str]


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

    @property
    def is_tls(self) -> bool:
        return self.ca is not None or self.cert is not None

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
    if credentials.is_tls and not tls:
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
