"""kubelet_internal_checkpoint: which container has which devices; one form, v2, in all known versions."""

from __future__ import annotations

from functools import cached_property

from draState.kubelet import CHECKSUM, STRING, STRINGS, Bytes, Field, Map, Node, Object, Slice, Struct, decode

from .checksum import dump_value, fnv32a
from .verdict import Judgement, UnverifiedState, corrupted, member_warnings, undecodable, valid, version_name

FORM = "v2"

_DEVICE_IDS = Map("checkpoint.DevicesPerNUMA", STRINGS, integer_keys=True)
_ENTRY = Struct(
    "checkpoint.PodDevicesEntry",
    (
        Field("PodUID", STRING),
        Field("ContainerName", STRING),
        Field("ResourceName", STRING),
        Field("DeviceIDs", _DEVICE_IDS),
        Field("AllocResp", Bytes()),
    ),
)
_DATA = Struct(
    "checkpoint.checkpointData",
    (
        Field("PodDeviceEntries", Slice("[]checkpoint.PodDevicesEntry", _ENTRY)),
        Field("RegisteredDevices", Map("map[string][]string", STRINGS)),
    ),
)
_FILE = Struct("checkpoint.Data", (Field("Data", _DATA), Field("Checksum", CHECKSUM)))


def reader(document: Node) -> DeviceState | UnverifiedState:
    """The document as a device manager state, to be judged by any kubelet version."""
    return UnverifiedState(document, "v1") if _is_flat(document) else DeviceState(document)


def _is_flat(document: Node) -> bool:
    """True if the device IDs are in plain lists, as they were before NUMA nodes were added."""
    data = document.get("DATA") if isinstance(document, Object) else None
    entries = data.get("PODDEVICEENTRIES") if isinstance(data, Object) else None
    if not isinstance(entries, list) or not entries:
        return False
    return all(isinstance(entry, Object) and isinstance(entry.get("DEVICEIDS"), list) for entry in entries)


class DeviceState:
    """One device manager checkpoint; all known kubelet versions judge it alike."""

    def __init__(self, document: Node) -> None:
        preset = {"Data": {"PodDeviceEntries": [], "RegisteredDevices": {}}, "Checksum": 0}
        self._decoded = decode(_FILE, document, preset)

    @cached_property
    def _expected(self) -> int:
        return fnv32a(dump_value(_DATA, self._decoded.value["Data"]))

    def judge(self, minor: int) -> Judgement:
        """What kubelet 1.`minor` makes of the document."""
        return self._judge(minor).warn(*member_warnings(minor, self._decoded))

    def _judge(self, minor: int) -> Judgement:
        if self._decoded.problems:
            return undecodable(FORM, self._decoded.problems[0], minor)
        stored, expected = self._decoded.value["Checksum"], self._expected
        if stored != expected:
            return corrupted(FORM, "Data", minor, expected, stored)
        return valid(FORM, f"Kubelet {version_name(minor)} loads this file.", stored)
