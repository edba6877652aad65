"""inspect: what kubelet would make of bytes and a file name. It never raises, whatever the bytes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Protocol

from draState._kubelet.syntax import Missing, Node, NotJSONError, Object, fold, parse

from . import cpu, devices, dra, health, memory, nvidia, pods, versions
from .plain import Plain, TooDeepError, plain
from .recognise import (
    ACTUATED,
    ALLOCATED,
    CPU,
    DEVICES,
    DRA,
    HEALTH,
    KUBELET_NAMES,
    NVIDIA,
    POD_KINDS,
    POD_STATUS,
    kind_of,
    kind_of_fragment,
)
from .verdict import Judgement, KubeletFile, Verdict, damaged, unknown


class Reader(Protocol):
    """A document of a known kind, ready to be judged."""

    def judge(self, minor: int) -> Judgement:
        """What kubelet 1.`minor` makes of the document."""
        ...


# The versions known to read a file of this kind under its name.
_READ_BY = dict.fromkeys(KUBELET_NAMES, versions.MINORS) | {
    ALLOCATED: tuple(range(pods.PRESENT_NAMES_SINCE, versions.NEWEST + 1)),
    ACTUATED: tuple(range(pods.PRESENT_NAMES_SINCE, versions.NEWEST + 1)),
    POD_STATUS: (pods.PRESENT_NAMES_SINCE - 1,),
    HEALTH: health.KNOWN_IN,
    NVIDIA: (),  # the driver reads it, kubelet never does
}


def inspect(blob: bytes, name: str = "", kubelet_version: str | None = None) -> KubeletFile | None:
    """What kubelet would make of a file with these bytes and this name.

    None if neither identifies a kubelet state file; a well-known name always does. With `kubelet_version` ("1.35",
    "v1.36.2") the verdict is for that version instead of the newest; raises ValueError for an unknown version.
    """
    minor = versions.parse(kubelet_version)
    name = name.rpartition("/")[2]
    try:
        document = parse(blob)
    except NotJSONError as error:
        return _broken(blob, name, error, minor)
    kind = kind_of(document, name)
    if not kind:
        return None
    reader = _reader(kind, document, blob)
    judgement = reader.judge(minor)
    if kubelet_version is not None and kind != NVIDIA and minor not in _READ_BY[kind]:
        judgement = _not_read(kind, judgement, minor)
    loads = {version: reader.judge(version).loads if version in _READ_BY[kind] else None for version in versions.MINORS}
    shown, sentence = _content(document)
    return _finding(kind, judgement.warn(_misnamed(kind, name), _unnamed(kind, name), sentence), loads, shown, minor)


def _reader(kind: str, document: Node, blob: bytes) -> Reader:
    if kind in POD_KINDS:
        return pods.reader(document, old_name=kind == POD_STATUS)
    if kind == DEVICES:
        return devices.reader(document)
    if kind == HEALTH:
        return health.HealthState(document)
    if kind == NVIDIA:
        return nvidia.DriverState(document, blob)
    if kind == DRA:
        return dra.ClaimState(document)
    return cpu.reader(document) if kind == CPU else memory.reader(document)


def _finding(kind: str, judgement: Judgement, loads: dict[int, bool | None], shown: Plain, minor: int) -> KubeletFile:
    return KubeletFile(
        kind=kind,
        format=judgement.format,
        verdict=judgement.verdict,
        reason=judgement.reason,
        detail=judgement.detail,
        expected=judgement.expected,
        actual=judgement.actual,
        warnings=judgement.warnings,
        loads_in=MappingProxyType({versions.name(version): answer for version, answer in loads.items()}),
        data=shown,
        kubelet_version=versions.name(minor),
    )


def _not_read(kind: str, judgement: Judgement, minor: int) -> Judgement:
    if judgement.verdict is not Verdict.VALID:
        return judgement
    detail = f"Kubelet {versions.name(minor)} is not known to read a {kind} of this form; its checksum is right."
    return unknown(judgement.format, detail, int(judgement.actual)).warn(*judgement.warnings)


def _misnamed(kind: str, name: str) -> str:
    if name not in KUBELET_NAMES or name == kind:
        return ""
    return f"The content is a {kind}; under the name {name} kubelet would not load it."


def _unnamed(kind: str, name: str) -> str:
    if kind != ALLOCATED or name == ALLOCATED:
        return ""
    return f"{ALLOCATED}, {ACTUATED} and {POD_STATUS} look the same; only the file name tells them apart."


def _broken(blob: bytes, name: str, error: NotJSONError, minor: int) -> KubeletFile | None:
    """The finding for bytes that are not one JSON document."""
    whole = None if isinstance(error.document, Missing) else error.document
    kind = kind_of(whole, name) if whole is not None else kind_of_fragment(blob, name)
    if not kind:
        return None
    reason, what = _damage(blob, error)
    reader = "NVIDIA's DRA driver" if kind == NVIDIA else f"Kubelet {versions.name(minor)}"
    detail = f"{reader} refuses this {kind}: {what}."
    shown, _ = _content(whole)
    loads = {version: False if version in _READ_BY[kind] else None for version in versions.MINORS}
    return _finding(kind, damaged("", reason, detail), loads, shown, minor)


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


def _content(document: Node) -> tuple[Plain, str]:
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


def _decoded(text: str) -> Plain:
    try:
        return plain(parse(text.encode("utf-8")))
    except NotJSONError:
        return str(text)
