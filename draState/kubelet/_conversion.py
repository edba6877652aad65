"""Converts between the bytes of a dra_manager_state and our states."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpointmanager import InvalidKey, check_key

from .._claims.state import ClaimInfoState, Device, DriverState, to_2, to_3
from .._errors import KubeletStateInvalid
from ._gotypes import Decoded
from ._statefile import API_VERSION, KIND, Form, StateFile, checksum, judge_dra_manager_state
from ._syntax import NotJSONError, parse


@dataclass(frozen=True, slots=True)
class KubeletDRAState:
    """The content of a file. `warnings` are for the importer; kubelet accepts the file without them.

    `form` "v1" is the current form, with a verified CRC-32. "entries" is the form of kubelet up to 1.30; its checksum
    depends on how Go prints a struct and is not verified.

    `claims` can be stored. A claim whose UID is not a valid checkpoint key cannot: `unusable` has the reason by its
    index in the file, counted from 0.
    """

    claims: tuple[ClaimInfoState, ...]
    form: Form
    checksum_verified: bool  # False for the older form
    warnings: tuple[str, ...] = ()
    unusable: Mapping[int, str] = field(default_factory=dict)


def read_dra_manager_state(blob: bytes) -> KubeletDRAState:
    """Read the claims in a file's bytes. Raises KubeletStateInvalid if kubelet would refuse them."""
    try:
        file = judge_dra_manager_state(parse(blob))
    except NotJSONError as error:
        raise KubeletStateInvalid(f"the file is not JSON ({error if blob else 'it is empty'})") from None
    if file.damage:
        numbers = f" ({file.stored}, but Data has {file.computed})" if file.reason == "checksum-mismatch" else ""
        raise KubeletStateInvalid(f"{file.damage}{numbers}")
    claims = [_claim(claim) for claim in file.claims]
    unusable = {index: why for index, claim in enumerate(claims) if (why := _unusable(claim.claim_uid))}
    usable = tuple(claim for index, claim in enumerate(claims) if index not in unusable)
    warnings = (*_about_form(file), *_about_claims(usable, unusable), *_about_fields(file.decodes))
    return KubeletDRAState(usable, file.form, file.computed is not None, warnings, unusable)


def _unusable(uid: str) -> str:
    """Why a claim with this UID cannot be stored; "" if it can. The UID may be arbitrary data, so it is not quoted."""
    try:
        check_key(uid)
    except InvalidKey:
        return "its UID cannot be a checkpoint key" if uid else "it has no UID"
    return ""


def _about_form(file: StateFile) -> Iterable[str]:
    if file.form == "entries":
        yield "the file has the form used before kubelet 1.31, whose checksum is not verified"
        return
    if not file.has_data:
        yield "the file has no Data: kubelet reads it as an empty state"
    elif (file.value["Kind"], file.value["APIVersion"]) != (KIND, API_VERSION):
        yield f"Data is not marked as {KIND} of {API_VERSION}; kubelet accepts that"


def _about_claims(usable: Iterable[ClaimInfoState], unusable: Mapping[int, str]) -> Iterable[str]:
    if unusable:
        yield f"{len(unusable)} claims cannot be stored and are left out; `unusable` says why"
    repeated = sum(count > 1 for count in Counter(claim.claim_uid for claim in usable).values())
    if repeated:
        yield f"{repeated} claim UIDs occur more than once; the last one counts"


def _about_fields(decodes: Iterable[Decoded]) -> Iterable[str]:
    unknown = {name for decoded in decodes for _, name in decoded.unknown}  # only counted, because names may be data
    if unknown:
        yield f"{len(unknown)} unknown fields are left out"


def _claim(claim: dict[str, Any]) -> ClaimInfoState:
    drivers = claim["DriverState"]
    return ClaimInfoState(
        claim_uid=claim["ClaimUID"],
        claim_name=claim["ClaimName"],
        namespace=claim["Namespace"],
        pod_uids=frozenset(claim["PodUIDs"] or ()),
        driver_states=_old_drivers(claim) if drivers is None else {name: _driver(drivers[name]) for name in drivers},
    )


def _driver(driver: dict[str, Any]) -> DriverState:
    devices = tuple(_device(device) for device in driver["Devices"] or ())
    return DriverState(devices, tuple(driver["SkipNodeOperations"] or ()))


def _device(device: dict[str, Any]) -> Device:
    return Device(
        device["PoolName"],
        device["DeviceName"],
        device["ShareID"],
        tuple(device["RequestNames"] or ()),
        tuple(device["CDIDeviceIDs"] or ()),
    )


def _old_drivers(claim: dict[str, Any]) -> dict[str, DriverState]:
    """The drivers of form "entries", converted by the migrations for our own files of that age."""
    old = {**claim, "CdiDevices": claim.get("CDIDevices")}
    state = to_3(to_2(old) if isinstance(old["CdiDevices"], list) else old)
    return {
        driver: DriverState(tuple(Device("", "", cdi_device_ids=tuple(d["cdi_device_ids"])) for d in plain["devices"]))
        for driver, plain in state["driver_states"].items()
    }


_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029\ufffd"}


def write_dra_manager_state(claims: Iterable[ClaimInfoState]) -> bytes:
    """The bytes that kubelet writes for these claims, in this order.

    Where Go distinguishes nil from empty and we do not, this writes what a running kubelet does: `[]` for no claims
    and `{}` for no pods or drivers, `null` for no devices, request names or CDI ids. U+FFFD is written as an escape,
    as kubelet writes the bad byte behind it. Unknown fields of the states are left out.
    """
    data = _marshal(
        {"kind": KIND, "apiVersion": API_VERSION, "ClaimInfoStateList": [_plain(claim) for claim in claims]}
    )
    try:
        return _marshal({"Data": data, "Checksum": checksum(data)}).encode()
    except UnicodeEncodeError:
        raise KubeletStateInvalid("a claim holds a lone surrogate, which is not Unicode text") from None


def _marshal(value: dict[str, Any]) -> str:
    """Format as json.Marshal does. What Go escapes and Python does not occurs only inside JSON strings."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def _plain(claim: ClaimInfoState) -> dict[str, Any]:
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
