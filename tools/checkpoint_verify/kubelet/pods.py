"""allocated_pods_state, actuated_pods_state, and before them pod_status_manager_state: one form, three names."""

from __future__ import annotations

import re

from draState.kubelet import (
    CHECKSUM,
    STRING,
    Custom,
    Escaped,
    Field,
    Map,
    Missing,
    Node,
    Number,
    Object,
    Pointer,
    Slice,
    Struct,
    UnmarshalError,
    decode,
    decode_text,
)

from .checksum import fnv32a_of_string
from .verdict import Judgement, UnverifiedState, corrupted, damaged, member_warnings, undecodable, valid, version_name

FORM = "v1"
OLD_FORM = "pre-1.32"
TEXT_FORM_SINCE = 32
PRESENT_NAMES_SINCE = 33


_QUANTITY = re.compile(
    r"[+-]?[0-9]*(?:\.[0-9]*)?(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?",
    re.ASCII,
)


def _unmarshal(node: Node) -> str:
    if node is None:
        return "0"
    # Kubelet looks at the raw text between the quotes, so an escape inside is an error.
    raw = node.text if isinstance(node, Number) else node
    text = raw.strip(" \t\r\n") if isinstance(raw, str) and not isinstance(raw, Escaped) else ""
    if not text or not _QUANTITY.fullmatch(text):
        raise UnmarshalError("not a resource quantity")
    return text


QUANTITY = Custom(STRING, _unmarshal)


_RESOURCES = Map("v1.ResourceList", QUANTITY)
_CLAIM = Struct("v1.ResourceClaim", (Field("Name", STRING, "name"), Field("Request", STRING, "request")))
_REQUIREMENTS = Struct(
    "v1.ResourceRequirements",
    (
        Field("Limits", _RESOURCES, "limits"),
        Field("Requests", _RESOURCES, "requests"),
        Field("Claims", Slice("[]v1.ResourceClaim", _CLAIM), "claims"),
    ),
)
_POD = Struct(
    "state.PodResourceInfo",
    (
        Field("ContainerResources", Map("map[string]v1.ResourceRequirements", _REQUIREMENTS)),
        Field("PodLevelResources", Pointer(_REQUIREMENTS)),
        Field("EmptyDirVolumeLimits", Map("map[string]*resource.Quantity", Pointer(QUANTITY))),
    ),
)
_STATE = Struct(
    "state.PodResourceCheckpointInfo", (Field("Entries", Map("state.PodResourceInfoMap", _POD), "entries"),)
)
_FILE = Struct("state.Checkpoint", (Field("Data", STRING, "data"), Field("Checksum", CHECKSUM, "checksum")))


def reader(document: Node, old_name: bool = False) -> PodState | UnverifiedState:
    """The document as a pod state, to be judged by any kubelet version.

    Under the old name a bare checksum is an empty state of the old form; under the other names it has no data.
    """
    bare = isinstance(document, Object) and document.names() == ["CHECKSUM"]
    if is_old_form(document) or (old_name and bare):
        return UnverifiedState(document, OLD_FORM, refused_since=TEXT_FORM_SINCE)
    return PodState(document)


def is_old_form(document: Node) -> bool:
    """True if the allocations are in the file itself, not in a text inside it."""
    if not isinstance(document, Object) or not isinstance(document.get("DATA"), Missing):
        return False
    allocations, resizes = document.get("ALLOCATIONENTRIES"), document.get("RESIZESTATUSENTRIES")
    return isinstance(allocations, Object) or isinstance(resizes, Object)


class PodState:
    """One pod resource checkpoint; all kubelet versions that read the form judge it alike."""

    def __init__(self, document: Node) -> None:
        self._file = decode(_FILE, document, _FILE.zero())
        self._state = decode_text(_STATE, self._file.value["Data"], _STATE.zero(), "data")
        self._expected = fnv32a_of_string(self._file.value["Data"])

    def judge(self, minor: int) -> Judgement:
        """What kubelet 1.`minor` makes of the document."""
        # What the text contained under the old name is unknown, so nothing in it counts as odd.
        inside = (self._state,) if minor >= PRESENT_NAMES_SINCE else ()
        return self._judge(minor).warn(*member_warnings(minor, self._file, *inside))

    def _judge(self, minor: int) -> Judgement:
        version, stored = version_name(minor), self._file.value["Checksum"]
        if self._file.problems:
            return undecodable(FORM, self._file.problems[0], minor)
        if stored != self._expected:
            return corrupted(FORM, "data", minor, self._expected, stored)
        if self._state.problems:
            problem = self._state.problems[0]
            detail = f"Kubelet {version} cannot decode data, though its checksum is right: {problem}."
            return damaged(FORM, "wrong-shape", detail, self._expected, stored)
        return valid(FORM, f"Kubelet {version} loads this file.", stored)
