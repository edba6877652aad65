"""Recognises kubelet's files by their content, or by their well-known names if the content is not enough."""

from __future__ import annotations

import re

from draState._kubelet.statefile import checksum as crc32
from draState._kubelet.syntax import Missing, Node, NotJSONError, Number, Object, parse

from . import dra, nvidia, pods
from .checksum import fnv32a_of_string
from .kinds import ALLOCATED, CPU, DEVICES, DRA, HEALTH, MEMORY, NVIDIA, POD_KINDS, POD_STATUS


def kind_of(document: Node, named: str) -> str:
    """The kind of a whole JSON document; `named` is the kind that belongs at its path. "" if neither shows it."""
    by_content = _kind_by_content(document)
    if by_content == ALLOCATED and named in POD_KINDS:
        return named
    return by_content or named


def kind_of_fragment(blob: bytes, named: str) -> str:
    """The kind that broken bytes probably were, by their first members or their path; "" if neither shows it."""
    for beginning, kind in _BEGINNINGS:
        if beginning.match(blob):
            return named if kind == ALLOCATED and named in POD_KINDS else kind
    return named


_BEGINNINGS = tuple(
    (re.compile(rb"\s*\{\s*" + pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (rb'"data"\s*:\s*"\{\\"kind\\":\\"DRACheckpoint', DRA),
        (rb'"version"\s*:\s*"v1"\s*,\s*"entries"\s*:\s*\[\s*\{\s*"(?:DriverName|ClassName|ClaimUID)"', DRA),
        (rb'"data"\s*:\s*"\{(?:\\"entries\\":|\}")', ALLOCATED),
        (rb'"data"\s*:\s*\{\s*"(?:PodDeviceEntries|RegisteredDevices)"', DEVICES),
        (rb'"policyName"\s*:\s*"[^"]*"\s*,\s*"defaultCpuSet"', CPU),
        (rb'"policyName"\s*:\s*"[^"]*"\s*,\s*"machineState"', MEMORY),
        (rb'"[^"]+"\s*:\s*\{\s*"Devices"\s*:\s*\{\s*"[^"]*"\s*:\s*\{\s*"PoolName"', HEALTH),
        (nvidia.BEGINNING, NVIDIA),
    )
)


def _kind_by_content(document: Node) -> str:
    if not isinstance(document, Object):
        return ""
    names = set(document.names())
    if "POLICYNAME" in names:
        return _policy_kind(document, names)
    if dra.is_old_form(document):
        return DRA
    if pods.is_old_form(document):
        return POD_STATUS
    if nvidia.is_checkpoint(document):
        return NVIDIA
    if dra.is_health(document):
        return HEALTH
    data = document.get("DATA")
    if isinstance(data, Object):
        return _device_kind(data, names)
    return _text_kind(document, data) if isinstance(data, str) else ""


def _policy_kind(document: Object, names: set[str]) -> str:
    if "DEFAULTCPUSET" in names or "MACHINESTATE" in names:
        return CPU if "DEFAULTCPUSET" in names else MEMORY
    if not names & {"CHECKSUM", "DATACHECKSUM", "ENTRIES", "PODENTRIES"}:
        return ""
    # The two managers spell their policies differently: "static" and "Static".
    policy = document.get("POLICYNAME")
    if policy in ("none", "static"):
        return CPU
    return MEMORY if policy in ("None", "Static") else ""


def _device_kind(data: Object, names: set[str]) -> str:
    inside = set(data.names())
    known = inside & {"PODDEVICEENTRIES", "REGISTEREDDEVICES"}
    return DEVICES if known or (not inside and names == {"DATA", "CHECKSUM"}) else ""


def _text_kind(document: Object, text: str) -> str:
    """DRA and pod files differ in their text, or in which checksum fits, or in letter case; tried in this order."""
    checksum = document.get("CHECKSUM")
    if isinstance(checksum, str) and ":" in checksum:  # another program's checksum
        return ""
    inside = _inside(text)
    if inside.get("KIND") == "DRACheckpoint" or isinstance(inside.get("CLAIMINFOSTATELIST"), list):
        return DRA
    if isinstance(checksum, Missing):
        return ""
    if isinstance(inside.get("ENTRIES"), Object):
        return ALLOCATED
    if isinstance(checksum, Number) and checksum.text == str(crc32(text)):
        return DRA
    if isinstance(checksum, Number) and checksum.text == str(fnv32a_of_string(text)):
        return ALLOCATED
    exact = {name for name, _ in document.members}
    if {"Data", "Checksum"} <= exact:
        return DRA
    return ALLOCATED if {"data", "checksum"} <= exact else ""


def _inside(text: str) -> Object:
    try:
        inner = parse(text.encode("utf-8"))
    except NotJSONError:
        return Object()
    return inner if isinstance(inner, Object) else Object()
