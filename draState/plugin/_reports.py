"""What a plugin reports to the users of a cluster, in requests that nobody waits for: Kubernetes Events on claims and
their pods, and what a claim's `status.devices` shows of its devices.

Kubelet reports every failed prepare itself, with our error. The events are about what happens between its calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import islice
from typing import Any
from urllib.parse import quote, urlencode

from .. import ClaimEvent, ClaimEventKind, ClaimRef
from ._apiserver import CLAIMS, JSON, RESOURCE_API, ApiError, ApiServer
from ._driver import PreparedDevice

logger = logging.getLogger("draState.plugin")

PERIOD_SECONDS = 1.0
AT_ONCE = 10  # requests per period: a node full of damaged claims must not flood the API server
WAITING = 1000  # requests; the oldest goes first if there are more

API = "events.k8s.io/v1"
MAX_NOTE = 1024  # bytes
MAX_INSTANCE = 128  # characters of the node's name
NAME_IN_NAME = 200  # characters of the object's name in the event's, which has at most 253
ACTION = "ReviewState"
APPLY = "application/apply-patch+yaml"  # of which JSON is a part
MAX_MANAGER = 128  # characters of the field manager

Entries = list[dict[str, Any]]  # of status.devices

REASONS = {
    ClaimEventKind.UNKNOWN: "ClaimStateUnknown",
    ClaimEventKind.UNKNOWN_DEVICES: "ClaimDevicesUnknown",
    ClaimEventKind.RECORD_LOST: "ClaimStateLost",
    ClaimEventKind.HEALED: "ClaimStateHealed",
    ClaimEventKind.OUTDATED: "ClaimOutdated",
    ClaimEventKind.ALLOCATION_CHANGED: "ClaimAllocationChanged",
    ClaimEventKind.ORPHANED: "ClaimOrphaned",
    ClaimEventKind.RELEASED: "ClaimReleased",
}


@dataclass(frozen=True, slots=True)
class Letter:
    """One request."""

    method: str
    target: str
    body: Mapping[str, Any]
    kind: str  # the media type of the body


class Outbox:
    """`run` it as a task. `put` may be called from any thread, and never waits."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._waiting: dict[str, Letter] = {}  # by key, oldest first; guarded by _lock
        self._lock = threading.Lock()
        self._complaints: set[str] = set()

    def put(self, key: str, letter: Letter) -> None:
        """Send this soon, in place of a letter with the same key that has not been sent yet."""
        with self._lock:
            self._waiting.pop(key, None)
            self._waiting[key] = letter
            if len(self._waiting) > WAITING:
                del self._waiting[next(iter(self._waiting))]

    async def run(self) -> None:
        while True:
            await asyncio.to_thread(self.send)
            await asyncio.sleep(PERIOD_SECONDS)

    def send(self) -> None:
        """Send what waits. What the server could not take now stays; what it refuses is dropped."""
        with self._lock:
            letters = list(islice(self._waiting.items(), AT_ONCE))
        for key, letter in letters:
            try:
                self._server.send(letter.method, letter.target, letter.body, letter.kind)
            except ApiError as error:
                if _may_pass(error.status):
                    return
                self._refused(letter, error)
            with self._lock:
                if self._waiting.get(key) is letter:
                    del self._waiting[key]

    def _refused(self, letter: Letter, error: ApiError) -> None:
        if error.missing or error.status == HTTPStatus.CONFLICT:
            return  # the object is gone, or it was reported before
        kind = str(letter.body["kind"])
        if kind not in self._complaints:  # once: it is the same for the next one, unless rights have changed
            self._complaints.add(kind)
            logger.warning("not reported to the cluster: %s", error)


def _may_pass(status: int) -> bool:
    return (
        status in (0, HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS)
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )


class Events:
    """The events of one driver on one node. An event that says the same as another one has the same name: the API
    server keeps the first, also across restarts."""

    def __init__(self, outbox: Outbox, driver: str, node: str) -> None:
        self._outbox = outbox
        self._driver = driver
        self._node = node

    def happened(self, event: ClaimEvent) -> None:
        """Report it, unless kubelet does or nobody knows the name of the claim."""
        if event.kind not in REASONS or event.ref is None:
            return
        for each in self._objects(event):
            name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
            target = f"/apis/{API}/namespaces/{quote(namespace, '')}/events"
            self._outbox.put(f"event/{name}", Letter("POST", target, each, JSON))

    def _objects(self, event: ClaimEvent) -> Iterator[dict[str, Any]]:
        assert event.ref
        namespace = event.ref.namespace
        claim = _reference("resource.k8s.io/v1", "ResourceClaim", namespace, event.ref.name, event.uid)
        yield self._object(event, claim)
        for uid, name in event.pods.items():
            if name:
                yield {**self._object(event, _reference("v1", "Pod", namespace, name, uid)), "related": claim}

    def _object(self, event: ClaimEvent, regarding: Mapping[str, str]) -> dict[str, Any]:
        note = f"{self._driver} on {self._node}: {event.detail}".encode()[:MAX_NOTE].decode(errors="ignore")
        said = "/".join([self._driver, self._node, event.kind, regarding["uid"], note])
        digest = hashlib.sha256(said.encode()).hexdigest()[:16]
        return {
            "apiVersion": API,
            "kind": "Event",
            "metadata": {
                "name": f"{regarding['name'][:NAME_IN_NAME].rstrip('.-')}.{digest}",
                "namespace": regarding["namespace"],
            },
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._driver,
            "reportingInstance": self._node[:MAX_INSTANCE],
            "action": ACTION,
            "reason": REASONS[event.kind],
            "regarding": dict(regarding),
            "type": "Normal" if event.kind is ClaimEventKind.HEALED else "Warning",
            "note": note,
        }


def _reference(api: str, kind: str, namespace: str, name: str, uid: str) -> dict[str, str]:
    return {"apiVersion": api, "kind": kind, "namespace": namespace, "name": name, "uid": uid}


class DeviceStatuses:
    """The entries of one driver on one node; the API server leaves those of others alone. Safe for many threads."""

    def __init__(self, outbox: Outbox, driver: str, node: str) -> None:
        self._outbox = outbox
        self._driver = driver
        self._reported: dict[str, Entries] = {}  # by claim UID, in this process
        self._query = urlencode({"fieldManager": f"{driver}/{node}"[:MAX_MANAGER], "force": "true"})

    def entries(self, prepared: Iterable[PreparedDevice]) -> Entries:
        """What the API server is to show, with the time of now."""
        return [self._entry(each) for each in prepared if each.status is not None]

    def withdraw(self, claim: ClaimRef, entries: Entries) -> None:
        """Show these no longer."""
        self._reported.setdefault(claim.uid, entries)
        self.report(claim, [])

    def report(self, claim: ClaimRef, entries: Entries) -> None:
        """Show these and no others, unless this process has done so. Call it again after a restart: the last process
        may have ended before it was sent."""
        before = self._reported.pop(claim.uid, [])
        if entries:
            self._reported[claim.uid] = entries
        if entries == before:
            return
        path = f"{RESOURCE_API}/namespaces/{quote(claim.namespace, '')}/{CLAIMS}/{quote(claim.name, '')}/status"
        patch = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
            "status": {"devices": entries},
        }
        self._outbox.put(f"status/{claim.uid}", Letter("PATCH", f"{path}?{self._query}", patch, APPLY))

    def _entry(self, prepared: PreparedDevice) -> dict[str, Any]:
        device, status = prepared.device, dict(prepared.status or {})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        required = {"status": "True", "reason": "SetUp", "message": "", "lastTransitionTime": now}
        status["conditions"] = [{**required, **each} for each in status.get("conditions") or ()]
        ours = {"driver": self._driver, "pool": device.pool_name, "device": device.device_name}
        return {**status, **ours, **({"shareID": device.share_id} if device.share_id else {})}
