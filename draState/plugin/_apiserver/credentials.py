"""Where the API server is, and how we prove our identity to it. Files are read when needed and not kept: tokens and
certificates are renewed on disk while the agent runs.
"""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass, field

from .execplugin import CredentialsError, ExecCredential, ExecPlugin

Pem = bytes | str  # the text itself, or the path of a file that contains it


@dataclass(frozen=True, slots=True)
class Tls:
    """How to verify the server, and our own certificate if we have one."""

    authority: Pem = b""  # the CA that signed the server's certificate; the system's CAs if empty
    certificate: Pem = b""
    key: Pem = field(default=b"", repr=False)
    server_name: str = ""  # the name in the server's certificate, if it is not the host's
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Credentials:
    """Without `tls`, requests use plain HTTP. The token comes from its file, `token` or the plugin, in this order."""

    host: str  # of the API server
    port: int  # of the API server
    base: str = ""  # the beginning of every path
    tls: Tls | None = None
    token: str = field(default="", repr=False)
    token_file: str = ""  # read for every request
    plugin: ExecPlugin | None = None

    def current(self) -> ExecCredential:
        """The token or certificate to use now."""
        if self.token_file:
            return ExecCredential(_read(self.token_file).decode("ascii", "replace").strip())
        if self.token or not self.plugin:
            return ExecCredential(self.token)
        return self.plugin.credential()

    def renew(self, refused: ExecCredential) -> bool:
        """Call this when the server has refused the credential. True if a new connection may succeed."""
        if self.plugin:
            self.plugin.forget(refused)
        return self.plugin is not None or bool(self.tls and isinstance(self.tls.certificate, str))

    def context(self, shown: ExecCredential) -> ssl.SSLContext | None:
        """The TLS context of a new connection that uses `shown`, with the current content of the files."""
        if not self.tls:
            return None
        authority = _read(self.tls.authority)
        context = ssl.create_default_context(cadata=authority.decode("ascii", "replace") if authority else None)
        if not self.tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate = _read(self.tls.certificate) or shown.certificate
        key = _read(self.tls.key) or shown.key
        if certificate:
            with tempfile.NamedTemporaryFile() as file:  # ssl reads only files; it is 0600 and removed at once
                file.write(certificate + b"\n" + key)
                file.flush()
                context.load_cert_chain(file.name)
        return context


def _read(pem: Pem) -> bytes:
    if isinstance(pem, bytes):
        return pem
    try:
        with open(pem, "rb") as file:
            return file.read()
    except OSError as error:
        raise CredentialsError(f"{pem}: {error.strerror}") from error
