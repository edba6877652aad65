"""What the tool knows about the content of particular programs: draState's kinds, and the files of kubelet and drivers.

The rest of the tool asks here and imports neither. Whose state a file holds (claim, pods, devices) means more to people
than a key, but is shown only on the tool's own screens: errors never show data. What a damaged file says about itself
is a hint, and is marked as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from checkpointmanager.format import (
    PREVIOUS,
    SUFFIX,
    SearchBudget,
    decode_key,
    legible_data,
    open_sealed,
    repair,
)
from draState import CLAIMS, POD_CONFIGS, ClaimInfoState, Device, PodConfig

from .findings import disk
from .findings.damage import HEADER_BYTES
from .findings.finding import Finding, State, Subject
from .kubelet import (
    DEVICE_PLUGINS,
    DRA,
    KNOWN_NAMES,
    KUBELET_NAMES,
    NEWEST,
    NO_CHECKSUM,
    NVIDIA,
    KubeletFile,
    Verdict,
    inspect,
    kind_at,
    parse_version,
    version_name,
)

__all__ = [
    "DEVICE_PLUGINS",
    "KNOWN_NAMES",
    "KUBELET_NAMES",
    "NEWEST_KUBELET",
    "NEWEST_VERSIONS",
    "NO_CHECKSUM",
    "KubeletFile",
    "Verdict",
    "claims_in",
    "inspect",
    "kind_at",
    "parse_version",
    "subject_at",
]

NEWEST_KUBELET = version_name(NEWEST)
NEWEST_VERSIONS = {schema.kind: schema.version for schema in (CLAIMS, POD_CONFIGS)}  # that this installation reads
BY_PREVIOUS = "as of the generation before"
BY_DAMAGED = "by its damaged bytes"
_KIND = re.compile(rb'"kind":"([A-Za-z]+)"')
_VERSIONS = re.compile(rb'"version":(\d{1,9}),"readable_by":(\d{1,9})')
_MEMBERS = {name: re.compile(rb'"' + name.encode() + rb'":"([^"\\]{1,253})"') for name in ("claim_name", "namespace")}


def subject_at(found: Finding, budget: SearchBudget | None = None) -> Subject | None:
    """The subject of a finding's file, from the best source. `budget` limits the search for a flipped bit."""
    if not found.key or found.kubelet:
        return None
    path, folder = found.path, found.path.rpartition("/")[0] or "."
    blob = found.blob or (b"" if found.state is State.UNREADABLE else disk.blob_of(path))  # it may be on a dead mount
    whole = _of_whole(blob, found.key)
    if whole or found.state is State.GOOD:
        return whole
    if (cure := repair(blob, budget)) and (mended := _of_whole(cure.blob, found.key)):
        return mended
    if path.endswith(found.key + SUFFIX):
        before = _of_whole(disk.blob_of(f"{folder}/{PREVIOUS}{found.key}"), found.key)
        if before:
            return replace(before, source=BY_PREVIOUS)
    guess = _of_damaged(blob, found.key)
    return replace(guess, source=BY_DAMAGED) if guess else None


def claims_in(kubelet: KubeletFile) -> Iterator[tuple[str, Subject]]:
    """UID and subject of each claim in a file of kubelet's or NVIDIA's, if it can be read."""
    if kubelet.kind == DRA:
        yield from _kubelet_claims(_at(kubelet.data, "Data", "ClaimInfoStateList"))
    elif kubelet.kind == NVIDIA:
        newest = next((form for name in ("v3", "v2", "v1") if (form := _at(kubelet.data, name))), None)
        claims = _at(newest, "preparedClaims")
        for uid, claim in claims.items() if isinstance(claims, dict) else ():
            results = _at(claim, "status", "allocation", "devices", "results")
            devices = tuple(_joined(one, "driver", "pool", "device") for one in _each(results))
            name = _joined(claim, "namespace", "name")
            yield str(uid), Subject((name,) if name else (), (), devices, str(_at(claim, "checkpointState") or ""))


def _of_claim(claim: ClaimInfoState) -> Subject:
    devices = (
        name
        for driver, state in sorted(claim.driver_states.items())
        for device in state.devices
        for name in _names(driver, device)
    )
    phases = sorted({state.phase.value for state in claim.driver_states.values() if state.phase})
    names = (f"{claim.namespace}/{claim.claim_name}",)
    return Subject(names, tuple(sorted(claim.pod_uids)), tuple(devices), " and ".join(phases))


def _names(driver: str, device: Device) -> Iterable[str]:
    """The oldest claims have no device names, only CDI ids."""
    return (f"{driver}/{device.pool_name}/{device.device_name}",) if device.device_name else device.cdi_device_ids


def _of_pod(key: str, pod: PodConfig) -> Subject:
    claims = {f"{device.namespace}/{device.claim_name}": None for device in pod.devices.values()}
    return Subject(tuple(claims), (key,), tuple(pod.devices))


def _of_whole(blob: bytes, key: str) -> Subject | None:
    """The subject of a whole checkpoint; None if its kind is unknown, or the data does not fit its schema."""
    try:
        header, data = open_sealed(blob, decode_key(key) or "")
        if header.kind == CLAIMS.kind:
            return _of_claim(CLAIMS.decode(data, header.version, header.readable_by)[0])
        if header.kind == POD_CONFIGS.kind:
            return _of_pod(header.key, POD_CONFIGS.decode(data, header.version, header.readable_by)[0])
    except Exception:  # noqa: BLE001 - what does not fit is shown without a subject, and judged elsewhere
        return None
    return None


def _of_damaged(blob: bytes, key: str) -> Subject | None:
    kind = _KIND.search(blob, 0, HEADER_BYTES)
    if kind is None or kind[1].decode() != CLAIMS.kind:
        return None
    try:
        versions = _VERSIONS.search(blob, 0, HEADER_BYTES)
        version, readable_by = map(int, versions.groups()) if versions else (CLAIMS.version, CLAIMS.version)
        return _of_claim(CLAIMS.decode(orjson.dumps(legible_data(blob)), version, readable_by)[0])
    except Exception:  # noqa: BLE001 - it is damaged: anything may be wrong with it
        found = {name: match[1].decode("utf-8", "replace") for name, p in _MEMBERS.items() if (match := p.search(blob))}
    return Subject((f"{found['namespace']}/{found['claim_name']}",)) if len(found) == len(_MEMBERS) else None


def _kubelet_claims(claims: Any) -> Iterator[tuple[str, Subject]]:
    for claim in _each(claims):
        drivers = _at(claim, "DriverState")
        devices = tuple(
            "/".join((str(driver), _joined(device, "PoolName", "DeviceName")))
            for driver, state in (drivers.items() if isinstance(drivers, dict) else ())
            for device in _each(_at(state, "Devices"))
        )
        pods = _at(claim, "PodUIDs")
        name = _joined(claim, "Namespace", "ClaimName")
        yield (
            str(_at(claim, "ClaimUID") or ""),
            Subject((name,), tuple(sorted(pods)) if isinstance(pods, dict) else (), devices),
        )


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _each(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _joined(value: Any, *names: str) -> str:
    found = [str(part) for name in names if (part := _at(value, name))]
    return "/".join(found)
