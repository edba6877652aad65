"""Writes CDI specification files, which say what the container runtime does to a container that gets a device.

One file per claim, replaced by a rename, so the runtime reads all of it or nothing. They are not synced: the agent
writes them again from the claims whenever it starts, and they are worthless after a reboot.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from .. import ClaimInvalid, Device, DriverState
from ._driver import ALLOCATION_VARIABLE, CLAIM_VARIABLE, DEVICE_VARIABLE, PreparedDevice
from ._inventory import Device as OfferedDevice

CDI_VERSION = "0.6.0"
CLASS = "device"
SUFFIX = ".json"
# What a container may want to know of its allocation, under the API server's names.
DECISIONS = ("consumedCapacity", "tolerations", "bindingConditions", "bindingFailureConditions")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")  # CDI's grammar for device names

Edits = list[dict[str, Any]]  # the devices of a file, each with what it does to a container


class CdiFolder:
    """The files of one driver in a folder that other drivers use as well; it touches only its own files."""

    def __init__(self, path: str, driver: str) -> None:
        self.path = path
        self._driver = driver
        self._prefix = f"{driver}-{CLASS}_"
        self._data = f"{driver}/driver-data"  # an annotation of the file
        os.makedirs(path, mode=0o755, exist_ok=True)

    def device_id(self, uid: str, device: Device) -> str:
        """The name by which kubelet refers to a device of a claim."""
        return f"{self._driver}/{CLASS}={device_name(uid, device)}"

    def write(self, uid: str, devices: Edits, data: Any = None) -> None:
        """Write the claim's file, unless it already has this content. `data` is for `shown`; runtimes ignore it."""
        path = self._path_of(uid)
        content = self._content(devices, data)
        if self._read(uid) == content:
            return
        temp = os.path.join(self.path, f".{os.path.basename(path)}.tmp")  # no other process uses it: we have the lock
        try:
            with open(temp, "wb") as file:
                os.fchmod(file.fileno(), 0o644)  # runtimes and their users read it, and it contains no secret
                file.write(content)
            os.rename(temp, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temp)
            raise

    def remove(self, uid: str) -> None:
        """Remove the claim's file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(self._path_of(uid))

    def uids(self) -> set[str]:
        """The claims that have a file."""
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
        ours = [name for name in names if name.startswith(self._prefix) and name.endswith(SUFFIX)]
        return {name.removeprefix(self._prefix).removesuffix(SUFFIX) for name in ours}

    def shown(self, uid: str, pool_of: Callable[[str], str]) -> DriverState | None:
        """What a claim's file shows if the claim's record is damaged or lost; None if the file is not whole."""
        found = []
        spec = self._spec(uid)
        edits = spec["devices"]
        try:
            for device in edits:
                lines = [line for line in device["containerEdits"]["env"] if line.startswith(DEVICE_VARIABLE)]
                (name,) = [line.partition("=")[2] for line in lines]
                share = device["name"].removeprefix(f"{uid}-{name}").removeprefix("-") or None
                shown = Device(pool_of(name), name, share)
                found.append(replace(shown, cdi_device_ids=(self.device_id(uid, shown),)))
            data = json.loads((spec.get("annotations") or {}).get(self._data, "null"))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        return DriverState(tuple(found), driver_data={"devices": edits, "data": data}) if found else None

    def is_copy(self, uid: str) -> bool:
        """True if the file defines devices of another claim, which the runtime would then find twice."""
        return any(not str(device.get("name")).startswith(f"{uid}-") for device in self._spec(uid)["devices"])

    def sweep(self, gone: Iterable[str]) -> dict[str, OSError]:
        """Remove the files of these claims, copies, and temp files of killed processes; return what stayed."""
        failures = {}
        for name in os.listdir(self.path):
            if name.startswith(f".{self._prefix}") and name.endswith(".tmp"):
                with suppress(OSError):
                    os.unlink(os.path.join(self.path, name))
        claims = self.uids()
        for uid in claims.intersection(gone) | {uid for uid in claims if self.is_copy(uid)}:
            try:
                self.remove(uid)
            except OSError as error:  # must not fail the start
                failures[self._path_of(uid)] = error
        return failures

    def _read(self, uid: str) -> bytes | None:
        try:
            with open(self._path_of(uid), "rb") as file:
                return file.read()
        except OSError:
            return None

    def _spec(self, uid: str) -> dict[str, Any]:
        """The content of the claim's file; no devices if it is not whole."""
        try:
            spec: dict[str, Any] = json.loads(self._read(uid) or b"{}")
            if all(isinstance(device, dict) for device in spec["devices"]):
                return spec
        except (ValueError, TypeError, KeyError):
            pass
        return {"devices": []}

    def _content(self, devices: Edits, data: Any) -> bytes:
        spec: dict[str, Any] = {"cdiVersion": CDI_VERSION, "kind": f"{self._driver}/{CLASS}", "devices": devices}
        if data is not None:
            spec["annotations"] = {self._data: json.dumps(data)}
        return json.dumps(spec, indent=1, sort_keys=True).encode() + b"\n"

    def _path_of(self, uid: str) -> str:
        return os.path.join(self.path, f"{self._prefix}{uid}{SUFFIX}")


def device_edits(
    uid: str, given: PreparedDevice, offered: OfferedDevice, result: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What one device does to a container: its nodes, and variables whose names no other device uses.

    The runtime merges the devices of a container, and equal names would overwrite each other. `result` is how the
    scheduler allocated the device.
    """
    device = given.device
    suffix = "_".join(filter(None, [device.device_name, device.share_id, "admin" if device.admin_access else ""]))
    suffix = re.sub("[^A-Z0-9]", "_", suffix.upper())
    lines = [f"{DEVICE_VARIABLE}{suffix}={device.device_name}", f"{CLAIM_VARIABLE}{suffix}={uid}"]
    if decided := {name: value for name, value in (result or {}).items() if name in DECISIONS and value}:
        lines.append(f"{ALLOCATION_VARIABLE}{suffix}={json.dumps(decided, sort_keys=True, separators=(',', ':'))}")
    env = {**offered.env, **given.env}
    edits: dict[str, Any] = {"env": lines + [f"{name}={value}" for name, value in sorted(env.items())]}
    if nodes := [*offered.device_nodes, *given.device_nodes]:
        edits["deviceNodes"] = [{"path": path} for path in nodes]
    for member, values in (("mounts", given.mounts), ("hooks", given.hooks)):
        if values:
            edits[member] = [dict(value) for value in values]
    entry: dict[str, Any] = {"name": device_name(uid, device), "containerEdits": edits}
    if given.annotations:
        entry["annotations"] = dict(given.annotations)
    return entry


def device_name(uid: str, device: Device) -> str:
    """One name per claim, device and share."""
    name = "-".join(filter(None, [uid, device.device_name, device.share_id]))
    if not _NAME.fullmatch(name):
        raise ClaimInvalid(f"claim {uid}: {name!r} cannot be the name of a CDI device")
    return name
