"""Writes our states as the bytes of a dra_manager_state."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .._claimstate import ClaimInfoState, DriverState
from .._errors import KubeletStateInvalid
from ._statefile import API_VERSION, KIND, checksum

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
