"""What the API server refuses and how it changes what it stores: ResourceSlices, and the status of devices.

It follows the server's rules and not the agent's version of them (`_grammar.py`), so that tests reveal an error in
either.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

APPLY = "application/apply-patch+yaml"
EVENTS = "/apis/events.k8s.io/v1/namespaces/"
LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
SUBDOMAIN = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:[.][a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]{0,31}"
QUANTITY = re.compile(r"([+-]?)([0-9.]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
BINARY = {suffix: 1024**power for power, suffix in enumerate(["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])}
DECIMAL = {
    suffix: Fraction(1000) ** power
    for power, suffix in zip(range(-3, 7), ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"], strict=True)
}
NEW_YEAR = datetime(2026, 1, 1)
_seconds = itertools.count()  # each write comes a second after the last, which reveals writes that change a time


def refusal(item: dict[str, Any], stored: dict[str, Any] | None) -> str:
    """Why the server would answer 422, or "" if it accepts the slice. `stored` is the slice that it would replace."""
    name, spec = item["metadata"]["name"], item["spec"]
    if len(name) > 253 or not re.fullmatch(SUBDOMAIN, name):
        return f"metadata.name: {name}: a lowercase RFC 1123 subdomain must consist of ..."
    if len(spec["driver"]) > 63 or not re.fullmatch(SUBDOMAIN, spec["driver"]):
        return f"spec.driver: {spec['driver']}: invalid"
    pool = spec["pool"]
    if len(pool["name"]) > 253 or not all(re.fullmatch(SUBDOMAIN, part) for part in pool["name"].split("/")):
        return f"spec.pool.name: {pool['name']}: invalid"
    if pool["resourceSliceCount"] < 1 or pool["generation"] < 0:
        return "spec.pool: must be greater than zero"
    if sum(bool(spec.get(field)) for field in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")) != 1:
        return "spec: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    for field in ("driver", "nodeName"):
        if stored and spec.get(field) != stored["spec"].get(field):
            return f"spec.{field}: field is immutable"
    if stored and pool["name"] != stored["spec"]["pool"]["name"]:
        return "spec.pool.name: field is immutable"
    devices = spec.get("devices") or []
    if devices and spec.get("sharedCounters"):
        return "spec: only one of `devices`, `sharedCounters` can be set"
    if len(spec.get("sharedCounters") or []) > 8 or any(len(each.get("consumesCounters", [])) > 2 for each in devices):
        return "spec: too many counter sets"
    consumed = any(device.get("consumesCounters") for device in devices)
    lists = any(kind.endswith("s") for device in devices for a in device.get("attributes", {}).values() for kind in a)
    tainted = any(device.get("taints") for device in devices)
    if len(devices) > (64 if lists or tainted or consumed else 128):
        return "spec.devices: too many"
    if len({device["name"] for device in devices}) < len(devices):
        return "spec.devices: duplicate value"
    return next(filter(None, (_device_refusal(device) for device in devices)), "")


def _device_refusal(device: dict[str, Any]) -> str:
    name = device["name"]
    if not re.fullmatch(LABEL, name):
        return f"spec.devices.name: {name}: a lowercase RFC 1123 label must consist of ..."
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > 32:
        return "the total number of attributes and capacities must not exceed 32"
    for key in (*attributes, *capacity):
        domain, _, identifier = key.rpartition("/")
        if not re.fullmatch(IDENTIFIER, identifier) or (domain and not re.fullmatch(SUBDOMAIN, domain)):
            return f"{key}: a valid C identifier must start with ..."
    if any(len(value) != 1 for value in attributes.values()):
        return "exactly one value must be specified"
    if len(device.get("taints") or []) > 16:
        return "taints: must have at most 16 items"
    if any(not QUANTITY.fullmatch(str(value["value"])) for value in capacity.values()):
        return "quantities must match the regular expression ..."
    return ""


def as_stored(item: dict[str, Any], disabled: Collection[str]) -> dict[str, Any]:
    """The object in the server's own form. `disabled` are the fields of devices whose feature is off."""
    stored = copy.deepcopy(item)
    if not stored["spec"].get("devices"):
        stored["spec"].pop("devices", None)
    for counter in _counters(stored["spec"].get("sharedCounters")):
        counter["value"] = canonical(counter["value"])
    for device in stored["spec"].get("devices") or []:
        for field in {*disabled, *(field for field, value in device.items() if value in ({}, []))}:
            device.pop(field, None)
        for taint in device.get("taints") or []:
            if "timeAdded" not in taint:
                taint["timeAdded"] = (NEW_YEAR + timedelta(seconds=next(_seconds))).isoformat() + "Z"
        for counter in _counters(device.get("consumesCounters")):
            counter["value"] = canonical(counter["value"])
        for capacity in (device.get("capacity") or {}).values():
            if {"allowMultipleAllocations"} & set(disabled):
                capacity.pop("requestPolicy", None)
            _each_quantity(capacity, canonical)
    return stored


def _counters(sets: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [counter for each in sets or [] for counter in each["counters"].values()]


def _each_quantity(capacity: dict[str, Any], form: Callable[[str], str]) -> None:
    capacity["value"] = form(str(capacity["value"]))
    policy = capacity.get("requestPolicy") or {}
    for holder, keys in ((policy, ("default",)), (policy.get("validRange") or {}, ("min", "max", "step"))):
        for key in keys:
            if key in holder:
                holder[key] = form(str(holder[key]))
    if "validValues" in policy:
        policy["validValues"] = [form(str(value)) for value in policy["validValues"]]


def canonical(quantity: str) -> str:
    """The same amount with no fraction and the largest suffix of its family."""
    found = QUANTITY.fullmatch(quantity)
    assert found, quantity
    sign, number, suffix = found[1], Fraction(found[2]), found[3] or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        power = int(suffix[1:])
        amount = number * Fraction(10) ** power
        power = max((p for p in range(-9, 19, 3) if (amount / Fraction(10) ** p).denominator == 1), default=-9)
        return f"{sign}{amount / Fraction(10) ** power}{f'e{power}' if power else ''}" if amount else "0"
    family: dict[str, Any] = BINARY if suffix.endswith("i") else DECIMAL
    amount = number * family[suffix]
    if amount == 0:
        return "0"
    if family is BINARY and amount.denominator > 1:
        family = DECIMAL
    best = max((each for each in family if (amount / family[each]).denominator == 1), key=family.__getitem__)
    return f"{'-' if sign == '-' else ''}{amount / family[best]}{best}"


def statuses_refusal(claim: dict[str, Any], manager: str, patch: dict[str, Any]) -> str:
    """Why the server would refuse an apply to a claim's status.devices, or ""."""
    if not manager:
        return "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch"
    allocation = claim["status"].get("allocation") or {"devices": {"results": []}}
    allocated = [_key(result) for result in allocation["devices"]["results"]]
    for entry in patch["status"].get("devices") or []:
        if _key(entry) not in allocated:
            return "status.devices: Invalid value: must be an allocated device in the claim"
        if why := _entry_refusal(entry):
            return f"status.devices: {why}"
    return ""


def _key(entry: dict[str, Any]) -> tuple[str, str, str, str]:
    return entry["driver"], entry["pool"], entry["device"], entry.get("shareID") or ""


def _entry_refusal(entry: dict[str, Any]) -> str:
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
