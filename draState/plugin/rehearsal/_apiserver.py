"""A local HTTP server with the API server paths that the agent uses. It refuses, rewrites and drops what the real one
does, and can be slow and fail.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from .._apiserver.client import CLAIMS, RESOURCE_API, RESOURCE_GROUP
from ._reported import APPLY, EVENTS, AppliedStatuses, event_refusal
from ._stored import as_stored, refusal

SLICES, NODES = "resourceslices", "nodes"
Answer = tuple[int, dict[str, Any]]


class LocalApiServer:
    """Objects in memory, behind a real socket. Every node exists until it is deleted.

    delay       seconds that every answer takes
    failing     status that every request gets instead of its answer, such as 503; 0 for none
    versions    of resource.k8s.io that it serves; without v1 it answers all of the agent's requests with 404
    disabled    device fields that it drops because their feature is off, such as allowMultipleAllocations
    requests    the number of requests, by kind: resourceclaims, resourceslices, nodes, events
    writes      the number of requests that changed a slice
    """

    def __init__(self) -> None:
        self.delay = 0.0
        self.failing = 0
        self.versions = ["v1"]
        self.disabled: set[str] = set()
        self.requests: Counter[str] = Counter()
        self.writes = 0
        self.events: list[dict[str, Any]] = []
        self._statuses = AppliedStatuses()
        self._objects: dict[str, dict[str, Any]] = {}  # by path below the resource API; guarded by _lock
        self._nodes: dict[str, str | None] = {}  # name to UID, None if deleted; guarded by _lock
        self._lock = threading.Lock()
        self._version = 0
        self._ended = threading.Event()
        self._server: _Server | None = None
        self._port = 0
        self._reserved = socket.socket()  # keeps the port from other programs while the server is down
        self.listen()

    @property
    def address(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def listening(self) -> bool:
        """False while it is down."""
        return self._server is not None

    def listen(self) -> None:
        """Accept connections, again under the same address."""
        self._server = _Server(("127.0.0.1", self._port), _handler(self))
        self._port = self._server.server_address[1]
        self._reserved.close()
        # The server checks every 50 ms whether to stop, so that tests do not wait for it.
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="api server", daemon=True).start()

    def go_down(self) -> None:
        """Refuse connections, and close those that there are, until `listen`."""
        server, self._server = self._server, None
        if server:
            server.shutdown()
            server.server_close()
            self._reserved = socket.socket()
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.bind(("127.0.0.1", self._port))

    def allocate(
        self,
        uid: str,
        name: str,
        devices: Iterable[str],
        *,
        driver: str,
        pool: str,
        namespace: str = "default",
        pods: Iterable[str] | None = None,
        request: str = "r",
        requests: Mapping[str, str] | None = None,
        share_id: str = "",
        admin_access: bool = False,
        consumed_capacity: Mapping[str, str] | None = None,
        from_class: Mapping[str, Any] | None = None,
        from_claim: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a claim as the scheduler leaves it: with these devices, reserved for pods with these UIDs.

        A prioritized list turns the request "gpu" into "gpu/small"; `requests` has the request per device if they
        differ. The same name with another UID replaces the claim; the same UID with other devices is what happens
        when kubelet was down and the claim was deallocated and allocated again. `from_class` and `from_claim` are
        parameters for the driver, for all requests.
        """
        more: dict[str, Any] = {}
        if share_id:
            more["shareID"] = share_id
        if admin_access:
            more["adminAccess"] = True
        if consumed_capacity:
            more["consumedCapacity"] = dict(consumed_capacity)
        results = [
            {"request": (requests or {}).get(device, request), "driver": driver, "pool": pool, "device": device, **more}
            for device in devices
        ]
        configs = [
            {"source": source, "opaque": {"driver": driver, "parameters": parameters}}
            for source, parameters in (("FromClass", from_class), ("FromClaim", from_claim))
            if parameters is not None
        ]
        reserved = [{"resource": "pods", "name": f"pod-{pod}", "uid": pod} for pod in _pods(uid, pods)]
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": {"allocation": {"devices": {"results": results, "config": configs}}, "reservedFor": reserved},
        }
        self.put(f"/namespaces/{namespace}/{CLAIMS}/{name}", claim)

    def reallocate(self, name: str, devices: Iterable[str], namespace: str = "default") -> None:
        """Give a claim other devices of the same pool; it keeps its UID and is not unprepared in between."""
        path = f"/namespaces/{namespace}/{CLAIMS}/{name}"
        claim = json.loads(json.dumps(self.get(path)))
        results = claim["status"]["allocation"]["devices"]["results"]
        claim["status"]["allocation"]["devices"]["results"] = [{**results[0], "device": device} for device in devices]
        self.put(path, claim)

    def reserve(self, name: str, pods: Iterable[str], namespace: str = "default") -> None:
        """Reserve a claim for these pods and no others: one more may share it, and the last may be gone."""
        path = f"/namespaces/{namespace}/{CLAIMS}/{name}"
        claim = json.loads(json.dumps(self.get(path)))
        claim["status"]["reservedFor"] = [{"resource": "pods", "name": f"pod-{pod}", "uid": pod} for pod in pods]
        self.put(path, claim)

    def deallocate(self, name: str, namespace: str = "default") -> None:
        """Take all devices from a claim, which stays."""
        path = f"/namespaces/{namespace}/{CLAIMS}/{name}"
        self.put(path, {**(self.get(path) or {}), "status": {}})

    def put(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        """Store an object under its path below the resource API, with a new version."""
        with self._lock:
            self._version += 1
            item["metadata"]["resourceVersion"] = str(self._version)
            self._objects[path] = item
            return item

    def delete(self, path: str) -> bool:
        """Remove an object; False if there was none."""
        with self._lock:
            return self._objects.pop(path, None) is not None

    def claim(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """The ResourceClaim object. Raises KeyError if there is none."""
        with self._lock:
            return self._objects[f"/namespaces/{namespace}/{CLAIMS}/{name}"]

    def forget_claim(self, name: str, namespace: str = "default") -> None:
        """Delete a claim."""
        self.delete(f"/namespaces/{namespace}/{CLAIMS}/{name}")

    def get(self, path: str) -> dict[str, Any] | None:
        """The object under a path below the resource API, if there is one."""
        with self._lock:
            return self._objects.get(path)

    def slices(self) -> list[dict[str, Any]]:
        """All ResourceSlices."""
        with self._lock:
            return [item for path, item in self._objects.items() if path.startswith(f"/{SLICES}/")]

    def wipe_slices(self, node: str) -> int:
        """Remove the slices of a node, of all drivers, as kubelet does when it starts. Returns how many."""
        gone = [item for item in self.slices() if item["spec"].get("nodeName") == node]
        return sum(self.delete(f"/{SLICES}/{item['metadata']['name']}") for item in gone)

    def node_uid(self, name: str) -> str | None:
        """The UID of a node; None if it was deleted."""
        with self._lock:
            return self._nodes.setdefault(name, str(uuid.uuid4()))

    def add_node(self, name: str) -> None:
        """Add a node with this name and a new UID."""
        with self._lock:
            self._nodes[name] = str(uuid.uuid4())

    def delete_node(self, name: str) -> None:
        """Delete the node and what it owns."""
        uid = self.node_uid(name)
        with self._lock:
            self._nodes[name] = None
        for item in self.slices():
            if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences") or []):
                self.delete(f"/{SLICES}/{item['metadata']['name']}")

    def close(self) -> None:
        """Stop for good."""
        self._ended.set()  # ends the delay of slow answers
        self.go_down()
        self._reserved.close()

    def __enter__(self) -> LocalApiServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def answer(self, method: str, target: str, body: dict[str, Any] | None, media: str = "") -> Answer:
        """The status and the object for one request, whose body has a media type."""
        split = urlsplit(target)
        path = unquote(split.path)
        kind = next((kind for kind in (SLICES, NODES, "events") if f"/{kind}" in path), CLAIMS)
        self.requests[kind] += 1
        self._ended.wait(self.delay)
        if self.failing:
            return _status(self.failing, "set to fail")
        if path.startswith("/api/v1/nodes/"):
            name = path.rpartition("/")[2]
            uid = self.node_uid(name)
            return (200, {"metadata": {"name": name, "uid": uid}}) if uid else _status(404, f"{name} not found")
        if path.startswith(EVENTS) and method == "POST" and body:
            return self._add_event(body)
        if path == RESOURCE_GROUP and self.versions:
            return 200, {"kind": "APIGroup", "versions": [{"version": version} for version in self.versions]}
        if not path.startswith(f"{RESOURCE_API}/") or "v1" not in self.versions:
            return _status(404, "the server could not find the requested resource")
        path = path.removeprefix(RESOURCE_API)
        query = {key: values[0] for key, values in parse_qs(split.query).items()}
        if kind == SLICES and method in ("POST", "PUT") and body:
            return self._write_slice(method, path, body, dry="dryRun" in query)
        if path.endswith((f"/{SLICES}", f"/{CLAIMS}")) and method == "GET":
            return 200, {"items": self._listed(path, query.get("fieldSelector", ""))}
        found = self.get(path.removesuffix("/status"))
        if found is None:
            kind, name = path.removesuffix("/status").split("/")[-2:]
            return _status(404, f'{kind} "{name}" not found', reason="NotFound", details={"name": name, "kind": kind})
        if method == "PATCH" and body:
            return self._apply(path.removesuffix("/status"), found, body, query.get("fieldManager", ""), media)
        if method == "DELETE":
            self.delete(path)
        return 200, found

    def _add_event(self, event: dict[str, Any]) -> Answer:
        if why := event_refusal(event):
            return _status(422, f"Event is invalid: {why}")
        if any(known["metadata"] == event["metadata"] for known in self.events):
            return _status(409, "already exists")
        self.events.append(event)
        return 201, event

    def _apply(self, path: str, claim: dict[str, Any], patch: dict[str, Any], manager: str, media: str) -> Answer:
        if media != APPLY:
            return _status(415, "the body of the request was in an unknown format")
        if patch["metadata"].get("uid", claim["metadata"]["uid"]) != claim["metadata"]["uid"]:
            return _status(409, "Precondition failed: UID in precondition")
        entries = self._statuses.applied(claim, manager, patch)
        if isinstance(entries, str):
            return _status(422, entries)
        return 200, self.put(path, {**claim, "status": {**claim["status"], "devices": entries}})

    def _listed(self, path: str, selector: str) -> list[dict[str, Any]]:
        kind = path.rpartition("/")[2]
        with self._lock:
            found = [(at, item) for at, item in self._objects.items() if f"/{kind}/" in at]
        inside = path.removesuffix(kind)
        return [item for at, item in found if at.startswith(inside) and _selected(item, selector)]

    def _write_slice(self, method: str, path: str, body: dict[str, Any], *, dry: bool) -> Answer:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
        found = self.get(path)
        if (found is None) != (method == "POST"):
            return _status(404, "not found") if found is None else _status(409, "already exists")
        if why := refusal(body, found):
            return _status(422, f"ResourceSlice is invalid: {why}")
        if found and body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
            return _status(409, "the object has been modified")
        stored = as_stored(body, self.disabled)
        if dry or (found and stored == found):  # a write that changes nothing does not count
            return 200, stored
        self.writes += 1
        return 201 if method == "POST" else 200, self.put(path, stored)


def _pods(uid: str, pods: Iterable[str] | None) -> Iterable[str]:
    """A claim that is allocated is always reserved for somebody, at first."""
    return [f"pod-of-{uid}"] if pods is None else pods


def _status(code: int, message: str, **more: Any) -> Answer:
    return code, {"kind": "Status", "message": message, **more}


def _selected(item: dict[str, Any], selector: str) -> bool:
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
    return all(item["spec"].get(field.removeprefix("spec."), "") == value for field, value in wanted.items())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Tests kill clients all the time: that is not an error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _handler(server: LocalApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # send head and body together: two small packets would wait for an acknowledgement

        def answer(self) -> None:
            if not server.listening:
                self.close_connection = True
                return
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, item = server.answer(self.command, self.path, body, self.headers.get("Content-Type") or "")
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

    return Handler
