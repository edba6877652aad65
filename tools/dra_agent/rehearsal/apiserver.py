"""A local HTTP server with the paths of the API server that the agent uses, which can be slow and can fail."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ..apiserver import RESOURCE_API

CLAIMS, SLICES = "resourceclaims", "resourceslices"


class LocalApiServer:
    """Objects in memory, behind a real socket.

    delay       seconds that every answer takes
    failing     status that every request gets instead of an answer, such as 503; 0 for none
    requests    how many came, by kind: resourceclaims, resourceslices
    """

    def __init__(self) -> None:
        self.delay = 0.0
        self.failing = 0
        self.requests: Counter[str] = Counter()
        self._objects: dict[str, dict[str, Any]] = {}  # by path below the resource API; guarded by _lock
        self._lock = threading.Lock()
        self._version = 0
        self._ended = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, name="api server", daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def allocate(
        self,
        uid: str,
        name: str,
        devices: Iterable[str],
        *,
        driver: str,
        pool: str,
        namespace: str = "default",
        pods: Iterable[str] = (),
        share_id: str = "",
    ) -> None:
        """A claim as it stands when the scheduler has decided: these devices, for pods with these UIDs."""
        results = [
            {"request": "r", "driver": driver, "pool": pool, "device": device}
            | ({"shareID": share_id} if share_id else {})
            for device in devices
        ]
        reserved = [{"resource": "pods", "name": f"pod-{pod}", "uid": pod} for pod in pods]
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
        }
        self.put(f"/namespaces/{namespace}/{CLAIMS}/{name}", claim)

    def put(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._version += 1
            item["metadata"]["resourceVersion"] = str(self._version)
            self._objects[path] = item
            return item

    def delete(self, path: str) -> bool:
        with self._lock:
            return self._objects.pop(path, None) is not None

    def forget_claim(self, name: str, namespace: str = "default") -> None:
        self.delete(f"/namespaces/{namespace}/{CLAIMS}/{name}")

    def get(self, path: str) -> dict[str, Any] | None:
        with self._lock:
            return self._objects.get(path)

    def slices(self) -> list[dict[str, Any]]:
        """All ResourceSlices."""
        with self._lock:
            return [item for path, item in self._objects.items() if path.startswith(f"/{SLICES}/")]

    def close(self) -> None:
        self._ended.set()  # whoever is being slow
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> LocalApiServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def answer(self, method: str, target: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        """The status and the object for one request."""
        self.requests[SLICES if SLICES in target else CLAIMS] += 1
        self._ended.wait(self.delay)
        if self.failing:
            return self.failing, {"kind": "Status", "message": "told to fail"}
        split = urlsplit(target)
        path = unquote(split.path).removeprefix(RESOURCE_API)
        if path == f"/{SLICES}" and method == "GET":
            return 200, {"items": [item for item in self.slices() if _selected(item, split.query)]}
        if path == f"/{SLICES}" and method == "POST" and body:
            return 201, self.put(f"{path}/{body['metadata']['name']}", body)
        found = self.get(path)
        if found is None:
            return 404, {"kind": "Status", "message": f"{path.rpartition('/')[2]} not found"}
        if method == "PUT" and body:
            if body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
                return 409, {"kind": "Status", "message": "the object has been modified"}
            return 200, self.put(path, body)
        if method == "DELETE":
            self.delete(path)
        return 200, found


def _selected(item: dict[str, Any], query: str) -> bool:
    selector = parse_qs(query).get("fieldSelector", [""])[0]
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
    spec = item["spec"]
    return all(spec.get(field.removeprefix("spec.")) == value for field, value in wanted.items())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients are killed here all the time: that is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _handler(server: LocalApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body leave together: two small packets would wait for an acknowledgement

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, item = server.answer(self.command, self.path, body)
            text = json.dumps(item).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            self.wfile.flush()

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the names that http.server looks for

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    return Handler
