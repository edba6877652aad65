"""dra_manager_state: the form with CRC-32 since kubelet 1.31, and the one before, read but not verified."""

from __future__ import annotations

from . import notes, versions
from .checksums import crc32
from .gojson import decode
from .gotypes import EMPTY_STRUCT, STRING, STRINGS, UINT32, Field, Map, Pointer, Slice, Struct, zero
from .syntax import Missing, Node, Number, Object
from .textstate import decode_text
from .unverified import UnverifiedState
from .verdict import Judgement, damaged, valid

FORM = "v1"
OLD_FORM = "pre-1.31"
TEXT_FORM_SINCE = 31

# What kubelet decodes over: a whole, empty state with its right checksum.
EMPTY_STATE = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":null}'

_DEVICE = Struct(
    "state.Device",
    (
        Field("PoolName", STRING),
        Field("DeviceName", STRING),
        Field("ShareID", Pointer(STRING)),
        Field("RequestNames", STRINGS),
        Field("CDIDeviceIDs", STRINGS),
    ),
)
_DRIVER = Struct(
    "state.DriverState",
    (
        Field("Devices", Slice("[]state.Device", _DEVICE)),
        Field("SkipNodeOperations", STRINGS, "skipNodeOperations"),
    ),
)
_CLAIM = Struct(
    "state.ClaimInfoState",
    (
        Field("ClaimUID", STRING),
        Field("ClaimName", STRING),
        Field("Namespace", STRING),
        Field("PodUIDs", Map("sets.Set[string]", EMPTY_STRUCT)),
        Field("DriverState", Map("map[string]state.DriverState", _DRIVER)),
    ),
)
_STATE = Struct(
    "state.CheckpointData",
    (
        Field("Kind", STRING, "kind"),
        Field("APIVersion", STRING, "apiVersion"),
        Field("ClaimInfoStateList", Slice("state.ClaimInfoStateList", _CLAIM)),
    ),
)
_FILE = Struct("state.Checkpoint", (Field("Data", STRING), Field("Checksum", UINT32)))


def reader(document: Node) -> ClaimState | UnverifiedState:
    """The document as a DRA manager state, to be judged by any kubelet version."""
    if is_old_form(document):
        return UnverifiedState(document, OLD_FORM, refused_since=TEXT_FORM_SINCE)
    return ClaimState(document)


def is_old_form(document: Node) -> bool:
    """Whether this is the form of kubelet 1.26 to 1.30: a version, a checksum, a list of entries if any."""
    if not isinstance(document, Object) or not isinstance(document.get("DATA"), Missing):
        return False
    if not isinstance(document.get("VERSION"), bytes) or not isinstance(document.get("CHECKSUM"), Number):
        return False
    entries = document.get("ENTRIES")
    if isinstance(entries, Missing):
        return len(document.members) == 2
    return isinstance(entries, list) and all(_is_claim(entry) for entry in entries)


def _is_claim(entry: Node) -> bool:
    return isinstance(entry, Object) and isinstance(entry.get("CLAIMUID"), bytes)


class ClaimState:
    """One DRA manager checkpoint, to be judged by any kubelet version."""

    def __init__(self, document: Node) -> None:
        data = document.get("DATA") if isinstance(document, Object) else None
        self._silent = data is None or isinstance(data, Missing)
        self._file = decode(_FILE, document, {"Data": EMPTY_STATE, "Checksum": crc32(EMPTY_STATE)})
        self._state = decode_text(self._file.value["Data"], _STATE, zero(_STATE))

    def judge(self, minor: int) -> Judgement:
        """What kubelet 1.`minor` makes of the document."""
        return self._judge(minor).warn(*notes.about(minor, self._file, self._state))

    def _judge(self, minor: int) -> Judgement:
        version, stored = versions.name(minor), self._file.value["Checksum"]
        expected = crc32(self._file.value["Data"])
        if self._file.problems:
            problem = self._file.problems[0]
            return damaged(FORM, "wrong-shape", f"Kubelet {version} cannot decode this file: {problem}.")
        if stored != expected:
            detail = f"Kubelet {version} refuses this file as corrupted: Data does not match its checksum."
            return damaged(FORM, "checksum-mismatch", detail, expected, stored)
        if self._state.problems:
            problem = self._state.problems[0]
            detail = f"Kubelet {version} cannot decode Data, though its checksum is right: {problem}."
            return damaged(FORM, "wrong-shape", detail, expected, stored)
        if minor < TEXT_FORM_SINCE:
            detail = f"Kubelet {version} refuses this file as corrupted: it reads only the form before 1.31."
            return damaged(FORM, "other-version", detail, None, stored)
        loaded = valid(FORM, f"Kubelet {version} loads this file.", stored)
        if not self._silent:
            return loaded
        return loaded.warn("The file has no Data: kubelet takes it for an empty state and forgets all claims.")
