"""dra_manager_state: which of its forms a document has, and whether kubelet loads it.

This is the only place that decides, for the import and for checkpoint-verify alike, and it follows the newest
kubelet. The one exception is the form of kubelet 1.26 to 1.30, which the newest does not read: it is read here, but
its checksum depends on how Go prints a struct and is not verified.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal

from ._gotypes import (
    CHECKSUM,
    EMPTY_STRUCT,
    STRING,
    STRINGS,
    UINT32,
    Custom,
    Decoded,
    Field,
    Map,
    Pointer,
    Slice,
    Struct,
    UnmarshalError,
    Value,
    decode,
    decode_text,
)
from ._syntax import Missing, Node, Number, Object

KIND = "DRACheckpoint"
API_VERSION = "checkpoint.dra.kubelet.k8s.io/v1"
# Kubelet decodes over this complete, empty state with its correct checksum. So `{}` and `null` are valid files.
EMPTY_STATE = f'{{"kind":"{KIND}","apiVersion":"{API_VERSION}","ClaimInfoStateList":null}}'

Form = Literal["v1", "entries"]


@dataclass(frozen=True, slots=True)
class StateFile:
    """One document and its verdict. `damage` is empty if kubelet loads it or, for form "entries", if it is readable."""

    form: Form
    value: Value  # the decoded state, a struct
    decodes: tuple[Decoded, ...]  # what Go would have said, one for each document inside
    stored: int  # the checksum that kubelet reads from the file
    computed: int | None  # the checksum that it should have; None if unknown
    reason: str = ""  # a machine word for the damage
    damage: str = ""  # a sentence for people, without the full stop
    has_data: bool = True  # False if the state is absent, which kubelet accepts

    @property
    def claims(self) -> list[Value]:
        """The claims as Go values, in the file's order."""
        return (self.value["ClaimInfoStateList"] if self.form == "v1" else self.value["Entries"]) or []


def judge_dra_manager_state(document: Node) -> StateFile:
    """The newest kubelet's verdict on a document: it loads the file unless `damage` is set."""
    return _entries(document) if _is_entries_form(document) else _current(document)


def _is_entries_form(document: Node) -> bool:
    """True for files of kubelet 1.26 to 1.30: a version, a checksum, and a list of entries if there are any."""
    if not isinstance(document, Object) or not isinstance(document.get("DATA"), Missing):
        return False
    if not isinstance(document.get("VERSION"), str) or not isinstance(document.get("CHECKSUM"), Number):
        return False
    entries = document.get("ENTRIES")
    return len(document.members) == 2 if isinstance(entries, Missing) else isinstance(entries, list)


def _current(document: Node) -> StateFile:
    data = document.get("DATA") if isinstance(document, Object) else None
    file = decode(_FILE, document, {"Data": EMPTY_STATE, "Checksum": checksum(EMPTY_STATE)})
    text, stored = file.value["Data"], file.value["Checksum"]
    state = decode_text(_STATE, text, _STATE.zero(), "Data")
    decodes = (file, state)
    if file.problems:
        return StateFile("v1", state.value, decodes, stored, None, "wrong-shape", file.problems[0])
    computed = checksum(text)
    reason = damage = ""
    if stored != computed:
        reason, damage = "checksum-mismatch", "Data does not match its checksum"
    elif state.problems:
        reason, damage = "wrong-shape", f"{state.problems[0]}, although its checksum is correct"
    has_data = not (data is None or isinstance(data, Missing))
    return StateFile("v1", state.value, decodes, stored, computed, reason, damage, has_data)


def _entries(document: Node) -> StateFile:
    file = decode(_OLD_FILE, document, _OLD_FILE.zero())
    reason, damage = ("wrong-shape", file.problems[0]) if file.problems else ("", "")
    return StateFile("entries", file.value, (file,), file.value["Checksum"], None, reason, damage)


def checksum(text: str) -> int:
    """CRC-32 of Data as kubelet computes it. Raises UnicodeEncodeError for half a character."""
    return zlib.crc32(text.encode("utf-8"))


def _cdi_devices(node: Node) -> Value:
    """Originally one list for the only driver, later one list per driver."""
    shape = STRINGS if isinstance(node, list) else _CDI_DEVICES
    devices = decode(shape, node, None)
    if devices.problems:
        raise UnmarshalError("neither a list of strings nor one such list per driver")
    return devices.value


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

_CDI_DEVICES = Map("map[string][]string", STRINGS)
_ENTRY = Struct(
    "state.ClaimInfoState",
    (
        Field("DriverName", STRING),
        Field("ClassName", STRING),
        Field("CDIDevices", Custom(_CDI_DEVICES, _cdi_devices)),
        *_CLAIM.fields,
    ),
)
_OLD_FILE = Struct(
    "state.DRAManagerCheckpoint",
    (
        Field("Version", STRING, "version"),
        Field("Entries", Slice("state.ClaimInfoStateList", _ENTRY), "entries"),
        Field("Checksum", CHECKSUM, "checksum"),
    ),
)
