"""inspect: what kubelet would make of bytes and a file name. It never raises, whatever the bytes."""

from __future__ import annotations

from dataclasses import fields
from types import MappingProxyType
from typing import Any, Protocol

from draState._kubelet.syntax import Missing, Node, NotJSONError, Number, Object, fold, parse

from . import cpu, devices, dra, memory, nvidia, pods
from .kinds import (
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
    kind_at,
)
from .recognise import kind_of, kind_of_fragment
from .verdict import MINORS, NEWEST, Judgement, KubeletFile, Verdict, damaged, parse_version, unknown, version_name


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
    kind = kind_of(document, named)
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
        return dra.HealthState(document)
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
    kind = kind_of(whole, named) if whole is not None else kind_of_fragment(blob, named)
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
