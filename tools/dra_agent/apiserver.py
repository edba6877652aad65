"""A small client of the API server: JSON over HTTP, with a limit on every wait and an error for every answer.

It blocks, so it is called from threads; each keeps its connection.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from .kubeconfig import Credentials

RESOURCE_GROUP = "/apis/resource.k8s.io"
RESOURCE_API = f"{RESOURCE_GROUP}/v1"
MAX_ANSWER = 16 << 20  # bytes


class ApiError(Exception):
    """The API server did not give what was asked for. `status` is 0 if it gave no answer at all."""

    def __init__(self, what: str, status: int, why: str) -> None:
        super().__init__(f"API server: {what}: {f'{status} ' if status else ''}{why}")
        self.status = status


class ApiServer:
    """One request at a time and thread. `timeout`, in seconds, is for connecting and for each wait on an answer."""

    def __init__(self, credentials: Credentials, timeout: float) -> None:
        self._credentials = credentials
        self._timeout = timeout
        self._threads = threading.local()

    def claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        """A ResourceClaim by name."""
        return self.request("GET", f"/namespaces/{quote(namespace, '')}/resourceclaims/{quote(name, '')}")

    def node(self, name: str) -> Mapping[str, Any]:
        """A Node by name."""
        return self._ask("GET", "/api/v1", f"/nodes/{quote(name, '')}")

    def served_versions(self) -> list[str]:
        """The versions of the resource API that this server has, by name; none if it has no such API."""
        try:
            group = self._ask("GET", RESOURCE_GROUP)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return []
            raise
        return [str(each.get("version")) for each in group.get("versions") or []]

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """The JSON object that a path below the resource API answers; ApiError for anything else."""
        return self._ask(method, RESOURCE_API, path, body)

    def _ask(self, method: str, api: str, path: str = "", body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        what = f"{method} {path or api}"
        kept = getattr(self._threads, "connection", None)
        try:
            try:
                status, text = self._exchange(kept or self._connected(), method, api + path, body)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if kept is None:
                    raise
                # The server has closed a connection that was idle: that says nothing, so once more on a new one.
                status, text = self._exchange(self._connected(), method, api + path, body)
        except TimeoutError as error:
            self.close()
            raise ApiError(what, 0, f"no answer within {self._timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ApiError(what, 0, f"cannot be reached: {error or type(error).__name__}") from error
        return _understood(what, status, text)

    def _connected(self) -> http.client.HTTPConnection:
        self.close()
        host, port, context = self._credentials.host, self._credentials.port, self._credentials.context
        self._threads.connection = (
            http.client.HTTPSConnection(host, port, timeout=self._timeout, context=context)
            if context
            else http.client.HTTPConnection(host, port, timeout=self._timeout)
        )
        connection: http.client.HTTPConnection = self._threads.connection
        return connection

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json"}
        if token := self._credentials.bearer():
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = json.dumps(body).encode() if body is not None else None
        connection.request(method, self._credentials.base + path, data, headers)
        response = connection.getresponse()
        text = response.read(MAX_ANSWER + 1)
        if response.will_close or len(text) > MAX_ANSWER:
            self.close()
        return response.status, text

    def close(self) -> None:
        """Give up the connection of this thread; its next request makes a new one."""
        connection = getattr(self._threads, "connection", None)
        self._threads.connection = None
        if connection:
            connection.close()


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
        raise ApiError(what, status, str(answer.get("message") or http.client.responses.get(status, "unexpected")))
    return answer
