"""inspect: what kubelet would make of bytes and a file name. No bytes make it raise."""

from __future__ import annotations

import re
import zlib
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Protocol

from draState.kubelet import Missing, Node, NotJSONError, Number, Object, fold, parse

from . import cpu, devices, dra, memory, nvidia, pods
from .checksum import fnv32a_of_string
from .verdict import (
    ACTUATED,
    ALLOCATED,
    CPU,
    DEVICES,
    DRA,
    HEALTH,
    KUBELET_NAMES,
    MEMORY,
    MINORS,
    NEWEST,
    NVIDIA,
    POD_KINDS,
    POD_STATUS,
    Judgement,
    KubeletFile,
    Verdict,
    damaged,
    kind_at,
    parse_version,
    unknown,
    version_name,
)


class Reader(Protocol):
    """A document of a known kind, ready to be judged."""

    def judge(self, minor: int) -> Judgement:
        """What kubelet 1.`minor` makes of the document."""
        ...


# The versions known to read a file of this kind under its name.
_READ_BY = dict.fromkeys(KUBELET_NAMES, MINORS) | {
    ALLOCATED: tuple(range(pods.PRESENT_NAMES_SINCE, NEWEST + 1)),
    ACTUATED: tuple(range(pods.PRESENT_NAMES_SINCE, NEWEST + 1)),
    POD_STATUS: (pods.PRESENT_NAMES_SINCE - 1,),
    HEALTH: dra.HEALTH_KNOWN_IN,
    NVIDIA: (),  # the driver reads it, kubelet never does
}


def inspect(blob: bytes, path: str = "", kubelet_version: str | None = None) -> KubeletFile | None:
    """What kubelet would make of a file with these bytes at this path, of which only the last two names count.

    None if neither identifies a kubelet state file; a well-known name always does. With `kubelet_version` ("1.35",
    "v1.36.2") the verdict is for that version instead of the newest; raises ValueError for an unknown version.
    """
    minor = parse_version(kubelet_version)
    name, named = path.rpartition("/")[2], kind_at(path)
    try:
        document = parse(blob)
    except NotJSONError as error:
        return _broken(blob, named, error, minor)
    kind = _kind_of(document, named)
    if not kind:
        return None
    reader = _reader(kind, document, blob)
    judgement = reader.judge(minor)
    if kubelet_version is not None and kind != NVIDIA and minor not in _READ_BY[kind]:
        judgement = _not_read(kind, judgement, minor)
    loads = {version: reader.judge(version).loads if version in _READ_BY[kind] else None for version in MINORS}
    shown, sentence = _content(document)
    return _file(kind, judgement.warn(_misnamed(kind, name), _unnamed(kind, name), sentence), loads, shown, minor)


def _reader(kind: str, document: Node, blob: bytes) -> Reader:
    if kind in POD_KINDS:
        return pods.reader(document, old_name=kind == POD_STATUS)
    if kind == DEVICES:
        return devices.reader(document)
    if kind == HEALTH:
        return dra.HealthState(blob)
    if kind == NVIDIA:
        return nvidia.DriverState(document, blob)
    if kind == DRA:
        return dra.ClaimState(document)
    return cpu.reader(document) if kind == CPU else memory.reader(document)


def _file(kind: str, judgement: Judgement, loads: dict[int, bool | None], shown: Any, minor: int) -> KubeletFile:
    return KubeletFile(
        **{field.name: getattr(judgement, field.name) for field in fields(judgement)},
        kind=kind,
        loads_in=MappingProxyType({version_name(version): answer for version, answer in loads.items()}),
        data=shown,
        kubelet_version=version_name(minor),
    )


def _not_read(kind: str, judgement: Judgement, minor: int) -> Judgement:
    if judgement.verdict is not Verdict.VALID:
        return judgement
    detail = f"Kubelet {version_name(minor)} is not known to read a {kind} of this form; its checksum is right."
    return unknown(judgement.format, detail, int(judgement.actual)).warn(*judgement.warnings)


def _misnamed(kind: str, name: str) -> str:
    if name not in KUBELET_NAMES or name == kind:
        return ""
    return f"The content is a {kind}; under the name {name} kubelet would not load it."


def _unnamed(kind: str, name: str) -> str:
    if kind != ALLOCATED or name == ALLOCATED:
        return ""
    return f"{ALLOCATED}, {ACTUATED} and {POD_STATUS} look the same; only the file name tells them apart."


def _broken(blob: bytes, named: str, error: NotJSONError, minor: int) -> KubeletFile | None:
    """The finding for bytes that are not one JSON document."""
    whole = None if isinstance(error.document, Missing) else error.document
    kind = _kind_of(whole, named) if whole is not None else _kind_of_fragment(blob, named)
    if not kind:
        return None
    reason, what = _damage(blob, error)
    reader = "NVIDIA's DRA driver" if kind == NVIDIA else f"Kubelet {version_name(minor)}"
    detail = f"{reader} refuses this {kind}: {what}."
    shown, _ = _content(whole)
    loads = {version: False if version in _READ_BY[kind] else None for version in MINORS}
    return _file(kind, damaged("", reason, detail), loads, shown, minor)


def _damage(blob: bytes, error: NotJSONError) -> tuple[str, str]:
    if not blob.strip(b" \t\r\n"):
        return "empty", "the file is empty"
    if error.reason == "trailing-bytes":
        return error.reason, f"the document ends at byte {error.offset}, but the file at byte {len(blob)}"
    first = blob.find(b"\0")
    if first >= 0 and not blob[first:].strip(b"\0"):
        where = "it contains only NUL bytes" if first == 0 else f"from byte {first} on it contains only NUL bytes"
        return "nul-filled", where
    if error.reason == "truncated":
        return error.reason, f"the document is cut off after {len(blob)} bytes"
    return error.reason, f"it is not JSON from byte {error.offset} on"


def _content(document: Node) -> tuple[Any, str]:
    """The document as plain values, with the text in its data member decoded, or a sentence that says why not."""
    try:
        shown = plain(document)
        if isinstance(document, Object):
            shown |= {
                name: _decoded(value)
                for name, value in document.members
                if isinstance(value, str) and fold(name) == "DATA"
            }
    except TooDeepError:
        return None, "The content nests too deeply to be shown."
    return shown, ""


def _decoded(text: str) -> Any:
    try:
        return plain(parse(text.encode("utf-8")))
    except NotJSONError:
        return str(text)


def _kind_of(document: Node, named: str) -> str:
    """The kind of a whole JSON document; `named` is the kind that belongs at its path. "" if neither shows it."""
    by_content = _kind_by_content(document)
    if by_content == ALLOCATED and named in POD_KINDS:
        return named
    return by_content or named


def _kind_of_fragment(blob: bytes, named: str) -> str:
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
    if isinstance(checksum, Number) and checksum.text == str(zlib.crc32(text.encode("utf-8"))):
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


MAX_SHOWN_DEPTH = 100  # levels; printers and encoders recurse
MAX_DIGITS = 4_000  # digits; Python refuses to turn much longer text into an int


class TooDeepError(Exception):
    """The document nests deeper than can be shown."""


def plain(node: Node, depth: int = 0) -> Any:
    """The tree as ordinary JSON values, the last of repeated members winning; raises TooDeepError."""
    if depth > MAX_SHOWN_DEPTH:
        raise TooDeepError
    if isinstance(node, Object):
        return {name: plain(value, depth + 1) for name, value in node.members}
    if isinstance(node, list):
        return [plain(value, depth + 1) for value in node]
    if isinstance(node, Number):
        return _plain_number(node.text)
    return str(node) if isinstance(node, str) else node


def _plain_number(text: str) -> int | float | str:
    if len(text) > MAX_DIGITS:
        return text
    if text.lstrip("-").isdigit():
        return int(text)
    value = float(text)
    return value if abs(value) != float("inf") else text
