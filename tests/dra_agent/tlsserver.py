"""A real TLS server with certificates of a throw-away authority, made with openssl."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to make certificates")
ADDRESS, NAME = "127.0.0.1", "kubernetes.default.svc"


class Authority:
    """Its certificate is ca.crt; `issue` makes others, as NAME.crt and NAME.key in the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._openssl("req", "-x509", *self._new("ca"), "-days", "2", "-out", "ca.crt")
        self.issue("server", f"IP:{ADDRESS}")
        self.issue("named", f"DNS:{NAME}")
        self.issue("client", "DNS:client")

    def issue(self, name: str, alternative_name: str, days: int = 2) -> None:
        (self.folder / "extensions").write_text(f"subjectAltName={alternative_name}\n")
        self._openssl("req", *self._new(name), "-out", f"{name}.csr")
        signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days)]
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-extfile", "extensions", "-out", f"{name}.crt")

    def _new(self, name: str) -> list[str]:
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]
        return [*key, "-subj", f"/CN={name}"]

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


class TlsServer:
    """Answers every request with an object. `refused` tokens get 401; `seen` has the token of each request, `peers`
    the names in the client's certificate. With `mutual` it requires one."""

    def __init__(self, authority: Authority, certificate: str = "server", *, mutual: bool = False) -> None:
        self.refused: set[str] = set()
        self.seen: list[str] = []
        self.peers: list[str] = []
        self.connections = 0
        self._server = ThreadingHTTPServer((ADDRESS, 0), _handler(self))
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.folder / f"{certificate}.crt", authority.folder / f"{certificate}.key")
        if mutual:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authority.folder / "ca.crt")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"https://{ADDRESS}:{self.port}"

    def __enter__(self) -> TlsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(server: TlsServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def setup(self) -> None:
            server.connections += 1
            super().setup()

        def do_GET(self) -> None:
            token = (self.headers["Authorization"] or "").removeprefix("Bearer ")
            peer: Any = self.connection.getpeercert()
            server.seen.append(token)
            server.peers += [value for _, value in (peer or {}).get("subjectAltName", ())]
            refused = token in server.refused
            body = json.dumps({"message": "no"} if refused else {"metadata": {"uid": "u"}}).encode()
            self.send_response(401 if refused else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    return Handler
