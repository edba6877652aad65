"""The paths of the API server that the agent uses, over HTTP. They refuse, rewrite and drop what the real one does,
and can be slow and fail.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from .._apiserver import CLAIMS, RESOURCE_API, RESOURCE_GROUP
from ._rules import APPLY, EVENTS, AppliedStatuses, as_stored, event_refusal, refusal

if TYPE_CHECKING:
    from ._apiserver import LocalApiServer

SLICES = "resourceslices"
Answer = tuple[int, dict[str, Any]]


class Requests:
    """Answers requests from the objects of a cluster."""

    def __init__(self, cluster: LocalApiServer) -> None:
        self._cluster = cluster
        self._statuses = AppliedStatuses()
        self.ended = threading.Event()  # set it to end the delay of slow answers

    def answer(self, method: str, target: str, body: dict[str, Any] | None, media: str = "") -> Answer:
        """The status and the object for one request, whose body has a media type."""
        split = urlsplit(target)
        path = unquote(split.path)
        kind = next((kind for kind in (SLICES, "nodes", "events") if f"/{kind}" in path), CLAIMS)
        self._cluster.requests[kind] += 1
        self.ended.wait(self._cluster.delay)
        if self._cluster.failing:
            return _status(self._cluster.failing, "set to fail")
        if path.startswith("/api/v1/nodes/"):
            name = path.rpartition("/")[2]
            uid = self._cluster.node_uid(name)
            return (200, {"metadata": {"name": name, "uid": uid}}) if uid else _status(404, f"{name} not found")
        if path.startswith(EVENTS) and method == "POST" and body:
            return self._add_event(body)
        if path == RESOURCE_GROUP and self._cluster.versions:
            return 200, {"kind": "APIGroup", "versions": [{"version": version} for version in self._cluster.versions]}
        if not path.startswith(f"{RESOURCE_API}/") or "v1" not in self._cluster.versions:
            return _status(404, "the server could not find the requested resource")
        path = path.removeprefix(RESOURCE_API)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        if kind == SLICES and method in ("POST", "PUT") and body:
            return self._write_slice(method, path, body, dry="dryRun" in query)
        if path.endswith((f"/{SLICES}", f"/{CLAIMS}")) and method == "GET":
            selector = query.get("fieldSelector", "")
            return 200, {"items": [item for item in self._cluster.listed(path) if _selected(item, selector)]}
        found = self._cluster.get(path.removesuffix("/status"))
        if found is None:
            kind, name = path.removesuffix("/status").split("/")[-2:]
            return _status(404, f'{kind} "{name}" not found', reason="NotFound", details={"name": name, "kind": kind})
        if method == "PATCH" and body:
            return self._apply(path.removesuffix("/status"), found, body, query.get("fieldManager", ""), media)
        if method == "DELETE":
            self._cluster.delete(path)
        return 200, found

    def _add_event(self, event: dict[str, Any]) -> Answer:
        if why := event_refusal(event):
            return _status(422, f"Event is invalid: {why}")
        if any(known["metadata"] == event["metadata"] for known in self._cluster.events):
            return _status(409, "already exists")
        self._cluster.events.append(event)
        return 201, event

    def _apply(self, path: str, claim: dict[str, Any], patch: dict[str, Any], manager: str, media: str) -> Answer:
        if media != APPLY:
            return _status(415, "the body of the request was in an unknown format")
        if patch["metadata"].get("uid", claim["metadata"]["uid"]) != claim["metadata"]["uid"]:
            return _status(409, "Precondition failed: UID in precondition")
        entries = self._statuses.applied(claim, manager, patch)
        if isinstance(entries, str):
            return _status(422, entries)
        return 200, self._cluster.put(path, {**claim, "status": {**claim["status"], "devices": entries}})

    def _write_slice(self, method: str, path: str, body: dict[str, Any], *, dry: bool) -> Answer:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
        found = self._cluster.get(path)
        if (found is None) != (method == "POST"):
            return _status(404, "not found") if found is None else _status(409, "already exists")
        if why := refusal(body, found):
            return _status(422, f"ResourceSlice is invalid: {why}")
        if found and body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
            return _status(409, "the object has been modified")
        stored = as_stored(body, self._cluster.disabled)
        if dry or (found and stored == found):  # a write that changes nothing does not count
            return 200, stored
        self._cluster.writes += 1
        return 201 if method == "POST" else 200, self._cluster.put(path, stored)


def _status(code: int, message: str, **more: Any) -> Answer:
    return code, {"kind": "Status", "message": message, **more}


def _selected(item: dict[str, Any], selector: str) -> bool:
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
    return all(item["spec"].get(field.removeprefix("spec."), "") == value for field, value in wanted.items())


class HttpServer(ThreadingHTTPServer):
    """Passes requests on; `listening` is False once it goes down, and connections that are still open get no answer."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, requests: Requests) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.requests = requests
        self.listening = True

    def shutdown(self) -> None:
        self.listening = False
        super().shutdown()

    def handle_error(self, request: object, client_address: object) -> None:
        """Tests kill clients all the time: that is not an error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # send head and body together: two small packets would wait for an acknowledgement

    def answer(self) -> None:
        if not self.server.listening:
            self.close_connection = True
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        status, item = self.server.requests.answer(
            self.command, self.path, body, self.headers.get("Content-Type") or ""
        )
        text = json.dumps(item).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - the names that http.server looks for

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""
