"""What the API server does with what agents report: events, and the status of devices by server-side apply."""

from __future__ import annotations

import json
import re
from typing import Any

Object = dict[str, Any]
APPLY = "application/apply-patch+yaml"
EVENTS = "/apis/events.k8s.io/v1/namespaces/"
WORDS = {"reason": 128, "action": 128, "reportingController": 128, "reportingInstance": 128}  # with their longest


def event_refusal(event: Object) -> str:
    """Why the server would answer 422 to a new event, or ""."""
    namespace, regarding = event["metadata"].get("namespace"), event.get("regarding") or {}
    if regarding.get("namespace") != namespace:
        return "involvedObject.namespace: does not match event.namespace"
    if not re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{6}Z", event.get("eventTime", "")):
        return "eventTime: Required value"
    for field, longest in WORDS.items():
        if not 0 < len(event.get(field, "")) <= longest:
            return f"{field}: can have at most {longest} characters"
    if event.get("type") not in ("Normal", "Warning") or len(event.get("note", "").encode()) > 1024:
        return "type or note: invalid value"
    return ""


class AppliedStatuses:
    """Who applied which entries of a claim's status.devices: an apply replaces those of its own manager."""

    def __init__(self) -> None:
        self._applied: dict[tuple[str, str], list[Object]] = {}  # by UID of the claim and field manager

    def applied(self, claim: Object, manager: str, patch: Object) -> list[Object] | str:
        """The entries after an apply, or why the server refuses it."""
        entries = patch["status"].get("devices") or []
        if not manager:
            return "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
        allocation = claim["status"].get("allocation") or {"devices": {"results": []}}
        allocated = [_key(result) for result in allocation["devices"]["results"]]
        for entry in entries:
            if _key(entry) not in allocated:
                return "status.devices: Invalid value: must be an allocated device in the claim"
            if why := _entry_refusal(entry):
                return f"status.devices: {why}"
        owner = claim["metadata"]["uid"], manager
        gone = [_key(entry) for entry in [*self._applied.get(owner, []), *entries]]
        self._applied[owner] = entries
        return [entry for entry in claim["status"].get("devices") or [] if _key(entry) not in gone] + entries


def _key(entry: Object) -> tuple[str, str, str, str]:
    return entry["driver"], entry["pool"], entry["device"], entry.get("shareID") or ""


def _entry_refusal(entry: Object) -> str:
    conditions, network = entry.get("conditions") or [], entry.get("networkData") or {}
    if len(conditions) > 8 or len({each["type"] for each in conditions}) < len(conditions):
        return "conditions: too many, or duplicate"
    for each in conditions:
        if each["status"] not in ("True", "False", "Unknown") or not re.fullmatch("[A-Za-z]\\w*", each["reason"]):
            return "conditions: invalid"
        if not {"message", "lastTransitionTime"} <= each.keys():
            return "conditions: Required value"
    if len(json.dumps(entry.get("data"))) > 10 << 10:
        return "data: Too long"
    if len(network.get("ips") or []) > 16 or not all("/" in ip for ip in network.get("ips") or []):
        return "networkData.ips: must be valid CIDRs, at most 16"
    return ""
