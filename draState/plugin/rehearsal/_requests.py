"""The paths of the API server that the agent uses, over HTTP. They refuse, rewrite and drop what the real one does,
and can be slow and fail.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from .._apiserver import CLAIMS, RESOURCE_API, RESOURCE_GROUP
from ._rules import APPLY, EVENTS, as_stored, refusal, statuses_refusal

if TYPE_CHECKING:
    from ._apiserver import LocalApiServer

SLICES = "resourceslices"
Answer = tuple[int, dict[str, Any]]


class HttpServer(ThreadingHTTPServer):
    """Answers from the objects of a cluster. Once it goes down, `listening` is False, and connections that are still
    open get no answer."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, cluster: LocalApiServer) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.cluster = cluster
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

    def respond(self) -> None:
        if not self.server.listening:
            self.close_connection = True
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        status, item = self._answer(self.server.cluster, body)
        text = json.dumps(item).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond  # noqa: N815 - the names that http.server looks for

    def _answer(self, cluster: LocalApiServer, body: dict[str, Any]) -> Answer:
        split = urlsplit(self.path)
        path = unquote(split.path)
        kind = next((kind for kind in (SLICES, "nodes", "events") if f"/{kind}" in path), CLAIMS)
        cluster.requests[kind] += 1
        cluster.closing.wait(cluster.delay)
        if cluster.failing:
            return _status(cluster.failing, "set to fail")
        if path.startswith("/api/v1/nodes/"):
            name = path.rpartition("/")[2]
            uid = cluster.node_uid(name)
            return (200, {"metadata": {"name": name, "uid": uid}}) if uid else _status(404, f"{name} not found")
        if path.startswith(EVENTS):
            return _add_event(cluster, body)
        if path == RESOURCE_GROUP and cluster.versions:
            return 200, {"kind": "APIGroup", "versions": [{"version": version} for version in cluster.versions]}
        if not path.startswith(f"{RESOURCE_API}/") or "v1" not in cluster.versions:
            return _status(404, "the server could not find the requested resource")
        path = path.removeprefix(RESOURCE_API)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        if kind == SLICES and self.command in ("POST", "PUT"):
            return _write_slice(cluster, self.command, path, body, dry="dryRun" in query)
        if path.endswith((f"/{SLICES}", f"/{CLAIMS}")):
            selector = query.get("fieldSelector", "")
            return 200, {"items": [item for item in cluster.listed(path) if _selected(item, selector)]}
        path = path.removesuffix("/status")
        found = cluster.get(path)
        if found is None:
            kind, name = path.split("/")[-2:]
            return _status(404, f'{kind} "{name}" not found', reason="NotFound", details={"name": name, "kind": kind})
        if self.command == "PATCH":
            if self.headers.get("Content-Type") != APPLY:
                return _status(415, "the body of the request was in an unknown format")
            return _apply(cluster, path, found, body, query.get("fieldManager", ""))
        if self.command == "DELETE":
            cluster.delete(path)
        return 200, found

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def _add_event(cluster: LocalApiServer, event: dict[str, Any]) -> Answer:
    if any(known["metadata"] == event["metadata"] for known in cluster.events):
        return _status(409, "already exists")
    cluster.events.append(event)
    return 201, event


def _apply(cluster: LocalApiServer, path: str, claim: dict[str, Any], patch: dict[str, Any], manager: str) -> Answer:
    """A driver's entries in status.devices replace its earlier ones; its name begins that of the field manager."""
    if patch["metadata"].get("uid", claim["metadata"]["uid"]) != claim["metadata"]["uid"]:
        return _status(409, "Precondition failed: UID in precondition")
    if why := statuses_refusal(claim, manager, patch):
        return _status(422, why)
    devices = claim["status"].get("devices") or []
    kept = [entry for entry in devices if entry["driver"] != manager.partition("/")[0]]
    status = {**claim["status"], "devices": kept + (patch["status"].get("devices") or [])}
    return 200, cluster.put(path, {**claim, "status": status})


def _write_slice(cluster: LocalApiServer, method: str, path: str, body: dict[str, Any], *, dry: bool) -> Answer:
    if method == "POST":
        path = f"{path}/{body['metadata']['name']}"
    found = cluster.get(path)
    if (found is None) != (method == "POST"):
        return _status(404, "not found") if found is None else _status(409, "already exists")
    if why := refusal(body, found):
        return _status(422, f"ResourceSlice is invalid: {why}")
    if found and body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
        return _status(409, "the object has been modified")
    stored = as_stored(body, cluster.disabled)
    if dry or (found and stored == found):  # a write that changes nothing does not count
        return 200, stored
    cluster.writes += 1
    return 201 if method == "POST" else 200, cluster.put(path, stored)


def _status(code: int, message: str, **more: Any) -> Answer:
    return code, {"kind": "Status", "message": message, **more}


def _selected(item: dict[str, Any], selector: str) -> bool:
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
    return all(item["spec"].get(field.removeprefix("spec."), "") == value for field, value in wanted.items())
