"""Kubelet's own file of claims, `dra_manager_state`: read into our states, and written as kubelet writes it.

Import and export are one line each:

    cache.put(*map(ClaimInfo, read_dra_manager_state(blob).claims))
    blob = write_dra_manager_state(claim.state for claim in cache if not claim.unknown)

Claims that are unknown have no state to export: kubelet would take a guess for the truth.

Reading follows Go's encoding/json, because kubelet accepts what that accepts: names in any letter case,
fields that nobody knows, a field given twice. Nothing here touches a file.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ._claimschema import to_2, to_3
from ._claimstate import ClaimInfoState, Device, DriverState
from ._errors import KubeletStateInvalid
from ._gojson import Place, fold, map_of, marshal, parse, pointer_to_text, slice_of, struct, text, text_of, unsigned

KIND = "DRACheckpoint"
API_VERSION = "checkpoint.dra.kubelet.k8s.io/v1"
# What kubelet decodes over: a fresh state, whose list is null. So `{}` and `null` are valid files without claims.
FRESH = f'{{"kind":"{KIND}","apiVersion":"{API_VERSION}","ClaimInfoStateList":null}}'

_DEVICE = struct(
    PoolName=text,
    DeviceName=text,
    ShareID=pointer_to_text,
    RequestNames=slice_of(text),
    CDIDeviceIDs=slice_of(text),
)
_DRIVER = struct(Devices=slice_of(_DEVICE), skipNodeOperations=slice_of(text))
_CLAIM = {
    "ClaimUID": text,
    "ClaimName": text,
    "Namespace": text,
    "PodUIDs": map_of(struct()),
    "DriverState": map_of(_DRIVER),
}
_DATA = struct(kind=text, apiVersion=text, ClaimInfoStateList=slice_of(struct(**_CLAIM)))
_FILE = struct(Data=text, Checksum=unsigned(32))


def _cdi_devices(node: Any, _: Any, place: Place) -> Any:
    """A list for the one driver at first, later lists by driver."""
    return (slice_of(text) if type(node) is list else map_of(slice_of(text)))(node, None, place)


_ENTRY = struct(DriverName=text, ClassName=text, CDIDevices=_cdi_devices, **_CLAIM)
_OLD_FILE = struct(version=text, entries=slice_of(_ENTRY), checksum=unsigned(64))

Form = Literal["v1", "entries"]


@dataclass(frozen=True, slots=True)
class KubeletDRAState:
    """What a file holds. `warnings` say what an importer should know though kubelet would not mind.

    `form` "v1" is the present one, with a CRC-32 that has been verified; "entries" that of kubelet up to 1.30,
    whose checksum depends on how Go prints a struct and is not verified.
    """

    claims: tuple[ClaimInfoState, ...]
    form: Form
    checksum_verified: bool
    warnings: tuple[str, ...] = ()


def read_dra_manager_state(blob: bytes) -> KubeletDRAState:
    """The claims in a file's bytes; KubeletStateInvalid where kubelet would refuse them."""
    outer = parse(text_of(blob), "the file")
    names = {fold(name) for name, _ in outer} if type(outer) is tuple else set()
    if "data" not in names and names & {"entries", "version"}:
        return _read_entries(outer)
    place = Place("file")
    file = _FILE(outer, {"Data": FRESH, "Checksum": zlib.crc32(FRESH.encode())}, place)
    actual = zlib.crc32(file["Data"].encode())
    if file["Checksum"] != actual:
        raise KubeletStateInvalid(f"checksum mismatch (the file says {file['Checksum']}, its Data has {actual})")
    data = _DATA(parse(file["Data"], "Data"), {}, Place("Data", place.unknown))
    claims = tuple(_claim(claim) for claim in data.get("ClaimInfoStateList") or ())
    warnings = [] if "data" in names else ["the file has no Data: kubelet takes it for an empty state"]
    if (data.get("kind"), data.get("apiVersion")) != (KIND, API_VERSION):
        warnings.append(f"Data does not call itself {KIND} of {API_VERSION}, which kubelet does not mind")
    return KubeletDRAState(claims, "v1", True, (*warnings, *_remarks(claims, place.unknown)))


def write_dra_manager_state(claims: Iterable[ClaimInfoState]) -> bytes:
    """The bytes that kubelet writes for these claims, in this order.

    Where kubelet's Go tells nil from empty and we do not, this writes what a running kubelet does: `[]` for no
    claims and `{}` for no pods or drivers, `null` for no devices, request names or CDI ids. U+FFFD is written as
    an escape, as kubelet writes the bad byte that it stands for. Unknown fields of the states are left out.
    """
    data = marshal(
        {"kind": KIND, "apiVersion": API_VERSION, "ClaimInfoStateList": [_plain_claim(claim) for claim in claims]}
    )
    try:
        checksum = zlib.crc32(data.encode())
    except UnicodeEncodeError:
        raise KubeletStateInvalid("a claim holds a lone surrogate, which is not Unicode text") from None
    return marshal({"Data": data, "Checksum": checksum}).encode()


def _read_entries(outer: Any) -> KubeletDRAState:
    place = Place("file")
    file = _OLD_FILE(outer, {}, place)
    if "checksum" not in file:
        raise KubeletStateInvalid("the file has neither Data nor a checksum")
    entries = file.get("entries") or ()
    claims = tuple(_claim(entry) if "DriverState" in entry else _old_claim(entry) for entry in entries)
    unverified = "the checksum is of the form before kubelet 1.31, which is not verified"
    return KubeletDRAState(claims, "entries", False, (unverified, *_remarks(claims, place.unknown)))


def _old_claim(entry: dict[str, Any]) -> ClaimInfoState:
    named = {"DriverName": "", "ClaimUID": "", "ClaimName": "", "Namespace": "", **entry}
    if isinstance(named.get("CDIDevices"), list):
        named = to_2({**named, "CdiDevices": named["CDIDevices"]})
    state = to_3(named)
    drivers = {
        driver: DriverState(tuple(Device("", "", cdi_device_ids=tuple(d["cdi_device_ids"])) for d in did["devices"]))
        for driver, did in state["driver_states"].items()
    }
    return ClaimInfoState(
        state["claim_uid"], state["claim_name"], state["namespace"], frozenset(state["pod_uids"]), drivers
    )


def _claim(claim: dict[str, Any]) -> ClaimInfoState:
    return ClaimInfoState(
        claim_uid=claim.get("ClaimUID", ""),
        claim_name=claim.get("ClaimName", ""),
        namespace=claim.get("Namespace", ""),
        pod_uids=frozenset(claim.get("PodUIDs") or ()),
        driver_states={driver: _driver(did) for driver, did in (claim.get("DriverState") or {}).items()},
    )


def _driver(did: dict[str, Any]) -> DriverState:
    devices = tuple(_device(device) for device in did.get("Devices") or ())
    return DriverState(devices, tuple(did.get("skipNodeOperations") or ()))


def _device(device: dict[str, Any]) -> Device:
    return Device(
        pool_name=device.get("PoolName", ""),
        device_name=device.get("DeviceName", ""),
        share_id=device.get("ShareID"),
        request_names=tuple(device.get("RequestNames") or ()),
        cdi_device_ids=tuple(device.get("CDIDeviceIDs") or ()),
    )


def _remarks(claims: Iterable[ClaimInfoState], unknown: set[str]) -> list[str]:
    repeated = sum(count > 1 for count in Counter(claim.claim_uid for claim in claims).values())
    remarks = [f"{repeated} claim UIDs stand for more than one claim; the last one counts"] if repeated else []
    return [*remarks, f"fields left out that are not known here: {', '.join(sorted(unknown))}"] if unknown else remarks


def _plain_claim(claim: ClaimInfoState) -> dict[str, Any]:
    return {
        "ClaimUID": claim.claim_uid,
        "ClaimName": claim.claim_name,
        "Namespace": claim.namespace,
        "PodUIDs": {pod_uid: {} for pod_uid in sorted(claim.pod_uids)},
        "DriverState": {driver: _plain_driver(did) for driver, did in sorted(claim.driver_states.items())},
    }


def _plain_driver(did: DriverState) -> dict[str, Any]:
    devices = [
        {
            "PoolName": device.pool_name,
            "DeviceName": device.device_name,
            "ShareID": device.share_id,
            "RequestNames": list(device.request_names) or None,
            "CDIDeviceIDs": list(device.cdi_device_ids) or None,
        }
        for device in did.devices
    ]
    skipped = {"skipNodeOperations": list(did.skipped_operations)} if did.skipped_operations else {}
    return {"Devices": devices or None, **skipped}
