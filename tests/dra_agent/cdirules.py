"""The rules of CDI for a specification file: its published JSON schema (types, required fields), and the grammar
and checks of the library with which runtimes read it. Facts from the project's schema folder and parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")
DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
ANNOTATION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
VERSIONS = {"0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"}


def broken_rules(spec: Any) -> list[str]:
    """What a runtime would object to."""
    return list(_in_spec(spec)) if isinstance(spec, dict) else ["not an object"]


def _in_spec(spec: dict[str, Any]) -> Iterator[str]:
    if spec.get("cdiVersion") not in VERSIONS:
        yield "unknown cdiVersion"
    vendor, slash, kind = str(spec.get("kind", "")).partition("/")
    if not slash or not VENDOR.fullmatch(vendor) or not CLASS.fullmatch(kind):
        yield "bad kind"
    devices = spec.get("devices")
    if not isinstance(devices, list) or not devices:
        yield "no devices"
        return
    for device in devices:
        if not DEVICE.fullmatch(str(device.get("name", ""))):
            yield "bad device name"
        yield from _in_edits(device.get("containerEdits"))
        yield from _in_annotations(device.get("annotations", {}))
    names = [device.get("name") for device in devices]
    if len(names) != len(set(names)):
        yield "two devices of one name"


def _in_annotations(annotations: Any) -> Iterator[str]:
    if not isinstance(annotations, dict) or not all(isinstance(value, str) for value in annotations.values()):
        yield "annotations that are not an object of strings"
        return
    for key in annotations:
        domain, slash, name = key.lower().rpartition("/")
        if not ANNOTATION.fullmatch(name) or len(name) > 63 or (slash and not DOMAIN.fullmatch(domain)):
            yield "bad name of an annotation"


def _in_edits(edits: Any) -> Iterator[str]:
    if not isinstance(edits, dict) or not edits:
        yield "empty containerEdits"
        return
    for line in edits.get("env", []):
        if not isinstance(line, str) or line.find("=") < 1:
            yield "an environment entry without a name"
    for node in edits.get("deviceNodes", []):
        if not isinstance(node, dict) or not node.get("path"):
            yield "a device node without a path"
