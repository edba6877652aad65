"""Kubernetes Events on claims and their pods: what a user has to know and kubelet cannot say.

Kubelet reports every failed prepare itself, with our error. These are about what happens between its calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from ... import ClaimEvent, ClaimEventKind
from .._apiserver.client import JSON
from .outbox import Letter, Outbox

API = "events.k8s.io/v1"
MAX_NOTE = 1024  # bytes
MAX_INSTANCE = 128  # characters of the node's name
NAME_IN_NAME = 200  # characters of the object's name in the event's, which has at most 253
ACTION = "ReviewState"

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
