"""A small client of the API server: JSON over HTTP, with a limit on every wait and an error for every answer.

It blocks, so call it from threads; each thread keeps its own connection.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from ._credentials import Credentials
from ._execplugin import CredentialsError, ExecCredential

RESOURCE_GROUP = "/apis/resource.k8s.io"
RESOURCE_API = f"{RESOURCE_GROUP}/v1"
CLAIMS = "resourceclaims"
JSON = "application/json"
MAX_ANSWER = 16 << 20  # bytes
PAGE = 500  # objects of a list per request, as kubectl asks for them


class ApiError(Exception):
    """A request to the API server failed. `status` is 0 if there was no answer at all.

    `missing` is the kind of an object that the server says does not exist: a 404 alone may also come from a server
    without this API, or from a proxy.
    """

    def __init__(self, what: str, status: int, why: str, missing: str = "") -> None:
        super().__init__(f"API server: {what}: {f'{status} ' if status else ''}{why}")
        self.status = status
        self.missing = missing


class ApiUnreachable(ApiError):
    """There was no connection to the API server."""


class ApiTimeout(ApiError, TimeoutError):
    """The API server took the request and did not answer in time."""


class ApiServer:
    """One request at a time per thread. `timeout`, in seconds, limits connecting and each wait for an answer."""

    def __init__(self, credentials: Credentials, timeout: float) -> None:
        self._credentials = credentials
        self._timeout = timeout
        self._threads = threading.local()

    def claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        """A ResourceClaim by name."""
        return self.request("GET", f"/namespaces/{quote(namespace, '')}/resourceclaims/{quote(name, '')}")

    def claims(self) -> Iterator[Mapping[str, Any]]:
        """All ResourceClaims of the cluster, in pages."""
        more = ""
        while True:
            page = self.request("GET", f"/{CLAIMS}?limit={PAGE}" + (f"&continue={quote(more, '')}" if more else ""))
            yield from page.get("items") or []
            more = str((page.get("metadata") or {}).get("continue") or "")
            if not more:
                return

    def node(self, name: str) -> Mapping[str, Any]:
        """A Node by name."""
        return self._ask("GET", "/api/v1", f"/nodes/{quote(name, '')}")

    def served_versions(self) -> list[str]:
        """The names of the resource API versions that this server has; empty if it does not have that API."""
        try:
            group = self._ask("GET", RESOURCE_GROUP)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return []
            raise
        return [str(each.get("version")) for each in group.get("versions") or []]

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """The JSON object at a path below the resource API. Raises ApiError for any other answer."""
        return self._ask(method, RESOURCE_API, path, body)

    def send(self, method: str, target: str, body: Mapping[str, Any], kind: str) -> None:
        """Send an object of a media type to any path. Raises ApiError unless the server accepts it."""
        self._ask(method, target, body=body, kind=kind)

    def _ask(
        self, method: str, api: str, path: str = "", body: Mapping[str, Any] | None = None, kind: str = JSON
    ) -> Mapping[str, Any]:
        what = f"{method} {path or api}"
        try:
            credential = self._credentials.current()
            status, text = self._exchange(credential, method, api + path, body, kind)
            if status == HTTPStatus.UNAUTHORIZED and self._credentials.renew(credential):
                self.close()
                status, text = self._exchange(self._credentials.current(), method, api + path, body, kind)
        except CredentialsError as error:
            self.close()
            raise ApiError(what, 0, str(error)) from error
        except _NoConnection as error:
            self.close()
            raise ApiUnreachable(what, 0, f"cannot be reached: {error}") from error
        except TimeoutError as error:
            self.close()
            raise ApiTimeout(what, 0, f"no answer within {self._timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ApiError(what, 0, f"the connection failed: {error or type(error).__name__}") from error
        return _understood(what, status, text)

    def _exchange(
        self, credential: ExecCredential, method: str, path: str, body: Mapping[str, Any] | None, kind: str
    ) -> tuple[int, bytes]:
        headers = {"Accept": JSON}
        if credential.token:
            headers["Authorization"] = f"Bearer {credential.token}"
        if body is not None:
            headers["Content-Type"] = kind
        data = json.dumps(body).encode() if body is not None else None
        kept = getattr(self._threads, "connection", None)
        try:
            return self._sent(kept or self._connected(credential), method, path, data, headers)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if kept is None:
                raise
            # The server closed an idle connection, which is not a failure: try once more on a new one.
            return self._sent(self._connected(credential), method, path, data, headers)

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
    ) -> tuple[int, bytes]:
        connection.request(method, self._credentials.base + path, data, headers)
        response = connection.getresponse()
        text = response.read(MAX_ANSWER + 1)
        if response.will_close or len(text) > MAX_ANSWER:
            self.close()
        return response.status, text

    def _connected(self, credential: ExecCredential) -> http.client.HTTPConnection:
        self.close()
        host, port, tls = self._credentials.host, self._credentials.port, self._credentials.tls
        context = self._credentials.context(credential)
        if context and tls:
            self._threads.connection = _SecureConnection(host, port, self._timeout, context, tls.server_name or host)
        else:
            self._threads.connection = http.client.HTTPConnection(host, port, timeout=self._timeout)
        connection: http.client.HTTPConnection = self._threads.connection
        try:
            connection.connect()
        except ssl.SSLError:
            raise  # somebody answered
        except OSError as error:
            raise _NoConnection(str(error) or type(error).__name__) from error
        return connection

    def close(self) -> None:
        """Close the connection of this thread; its next request opens a new one."""
        connection = getattr(self._threads, "connection", None)
        self._threads.connection = None
        if connection:
            connection.close()


class _NoConnection(Exception):
    pass


class _SecureConnection(http.client.HTTPSConnection):
    """A connection to a server whose certificate may name another host."""

    def __init__(self, host: str, port: int, timeout: float, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._tls, self._server_name = context, server_name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def _understood(what: str, status: int, text: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise ValueError("not an object")
    except ValueError as error:
        if status < http.client.MULTIPLE_CHOICES:
            raise ApiError(what, status, f"the answer is not JSON: {error}") from error
        answer = {}
    if status >= http.client.MULTIPLE_CHOICES:
        why = str(answer.get("message") or http.client.responses.get(status, "unexpected"))
        raise ApiError(what, status, why, _missing(status, answer))
    return answer


def _missing(status: int, answer: Mapping[str, Any]) -> str:
    details = answer.get("details")
    if status != http.client.NOT_FOUND or answer.get("reason") != "NotFound" or not isinstance(details, dict):
        return ""
    return str(details.get("kind", "")) if details.get("name") else ""
