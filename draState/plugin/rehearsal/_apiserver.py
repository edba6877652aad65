"""The objects of a cluster, in memory behind a real socket, and what others do to them: the scheduler, people, and
kubelet at its start. `_requests.py` answers the agent's own requests.
"""

from __future__ import annotations

import copy
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from .._apiserver import CLAIMS
from ._requests import SLICES, HttpServer


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
        self._objects: dict[str, dict[str, Any]] = {}  # by path below the resource API; guarded by _lock
        self._nodes: dict[str, str | None] = {}  # name to UID, None if deleted; guarded by _lock
        self._lock = threading.Lock()
        self._version = 0
        self.closing = threading.Event()  # ends the delay of slow answers
        self._server: HttpServer | None = None
        self._port = 0
        self._reserved = socket.socket()  # keeps the port from other programs while the server is down
        self.listen()

    @property
    def address(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self._port}"

    def listen(self) -> None:
        """Accept connections, again under the same address."""
        self._server = HttpServer(self._port, self)
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
        from_class: Mapping[str, Any] | None = None,
        from_claim: Mapping[str, Any] | None = None,
        **result: Any,
    ) -> None:
        """Create a claim as the scheduler leaves it: with these devices, reserved for pods with these UIDs.

        A prioritized list turns the request "gpu" into "gpu/small". The same name with another UID replaces the claim;
        the same UID with other devices is what happens when kubelet was down and the claim was deallocated and
        allocated again. `from_class` and `from_claim` are parameters for the driver, for all requests. `result` has
        more fields of each device's result, such as shareID, adminAccess and consumedCapacity.
        """
        results = [
            {"request": request, "driver": driver, "pool": pool, "device": device, **result} for device in devices
        ]
        configs = [
            {"source": source, "opaque": {"driver": driver, "parameters": parameters}}
            for source, parameters in (("FromClass", from_class), ("FromClaim", from_claim))
            if parameters is not None
        ]
        reserved = _reserved([f"pod-of-{uid}"] if pods is None else pods)  # at first there is always a pod
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": {"allocation": {"devices": {"results": results, "config": configs}}, "reservedFor": reserved},
        }
        self.put(_claim_path(name, namespace), claim)

    def reallocate(self, name: str, devices: Iterable[str], namespace: str = "default") -> None:
        """Give a claim other devices of the same pool; it keeps its UID and is not unprepared in between."""
        claim = copy.deepcopy(self.claim(name, namespace))
        allocated = claim["status"]["allocation"]["devices"]
        allocated["results"] = [{**allocated["results"][0], "device": device} for device in devices]
        self.put(_claim_path(name, namespace), claim)

    def reserve(self, name: str, pods: Iterable[str], namespace: str = "default") -> None:
        """Reserve a claim for these pods and no others: one more may share it, and the last may be gone."""
        claim = self.claim(name, namespace)
        self.put(_claim_path(name, namespace), {**claim, "status": {**claim["status"], "reservedFor": _reserved(pods)}})

    def deallocate(self, name: str, namespace: str = "default") -> None:
        """Take all devices from a claim, which stays."""
        self.put(_claim_path(name, namespace), {**self.claim(name, namespace), "status": {}})

    def forget_claim(self, name: str, namespace: str = "default") -> None:
        """Delete a claim."""
        self.delete(_claim_path(name, namespace))

    def claim(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """The ResourceClaim object. Raises KeyError if there is none."""
        with self._lock:
            return self._objects[_claim_path(name, namespace)]

    def slices(self) -> list[dict[str, Any]]:
        """All ResourceSlices."""
        return self.listed(f"/{SLICES}")

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

    def put(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        """Store an object under its path below the resource API, with a new version."""
        with self._lock:
            self._version += 1
            item["metadata"]["resourceVersion"] = str(self._version)
            self._objects[path] = item
            return item

    def get(self, path: str) -> dict[str, Any] | None:
        """The object under a path below the resource API, if there is one."""
        with self._lock:
            return self._objects.get(path)

    def delete(self, path: str) -> bool:
        """Remove an object; False if there was none."""
        with self._lock:
            return self._objects.pop(path, None) is not None

    def listed(self, path: str) -> list[dict[str, Any]]:
        """The objects of a kind, such as /resourceslices, or of a kind in one namespace."""
        inside, _, kind = path.rpartition("/")
        with self._lock:
            found = list(self._objects.items())
        return [item for at, item in found if at.startswith(f"{inside}/") and f"/{kind}/" in at]

    def close(self) -> None:
        """Stop for good."""
        self.closing.set()
        self.go_down()
        self._reserved.close()

    def __enter__(self) -> LocalApiServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _claim_path(name: str, namespace: str) -> str:
    return f"/namespaces/{namespace}/{CLAIMS}/{name}"


def _reserved(pods: Iterable[str]) -> list[dict[str, str]]:
    return [{"resource": "pods", "name": f"pod-{pod}", "uid": pod} for pod in pods]
