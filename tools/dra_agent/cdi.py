"""CDI specification files: what the container runtime does to a container that gets a device.

One file a claim, replaced by a rename, so that the runtime reads all of it or nothing. They are not synced: they
are made anew from the cache whenever the agent starts, and worth nothing after a reboot.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress

from draState import ClaimInfoState, Device

from .settings import Inventory

CDI_VERSION = "0.6.0"
CLASS = "device"
SUFFIX = ".json"
_DEVICE = "DRA_DEVICE="  # tells the container which device it has


class CdiFolder:
    """The files of one driver in a folder that other drivers use as well: only its own are ever touched."""

    def __init__(self, path: str, inventory: Inventory) -> None:
        self.path = path
        self._inventory = inventory
        self._prefix = f"{inventory.driver}-{CLASS}_"
        os.makedirs(path, mode=0o755, exist_ok=True)

    def device_id(self, uid: str, device: str, share_id: str | None) -> str:
        """The name by which kubelet tells the runtime about a device of a claim."""
        return f"{self._inventory.driver}/{CLASS}={_name(uid, device, share_id)}"

    def write(self, claim: ClaimInfoState) -> None:
        """Make the claim's file say what the claim holds."""
        path = self._path_of(claim.claim_uid)
        temp = os.path.join(self.path, f".{os.path.basename(path)}.tmp")  # ours alone: we have the lock
        try:
            with open(temp, "wb") as file:
                os.fchmod(file.fileno(), 0o644)  # runtimes and their users read it, and there is no secret in it
                file.write(self.content(claim))
            os.rename(temp, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temp)
            raise

    def remove(self, uid: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path_of(uid))

    def uids(self) -> set[str]:
        """The claims that have a file."""
        names = [name for name in os.listdir(self.path) if name.startswith(self._prefix) and name.endswith(SUFFIX)]
        return {name.removeprefix(self._prefix).removesuffix(SUFFIX) for name in names}

    def read(self, uid: str) -> bytes | None:
        try:
            with open(self._path_of(uid), "rb") as file:
                return file.read()
        except OSError:
            return None

    def devices(self, uid: str) -> tuple[str, ...]:
        """The devices that a claim's file speaks of: what is left to know when the claim itself is damaged."""
        try:
            spec = json.loads(self.read(uid) or b"{}")
            env = [line for device in spec.get("devices", []) for line in device["containerEdits"]["env"]]
        except (ValueError, TypeError, KeyError, AttributeError):
            return ()
        return tuple(line.removeprefix(_DEVICE) for line in env if line.startswith(_DEVICE))

    def sweep(self) -> None:
        """Temp files of a process that was killed."""
        for name in os.listdir(self.path):
            if name.startswith(f".{self._prefix}") and name.endswith(".tmp"):
                with suppress(OSError):
                    os.unlink(os.path.join(self.path, name))

    def content(self, claim: ClaimInfoState) -> bytes:
        driver = self._inventory.driver
        devices = claim.driver_states[driver].devices if driver in claim.driver_states else ()
        spec = {
            "cdiVersion": CDI_VERSION,
            "kind": f"{driver}/{CLASS}",
            "devices": [self._device(claim.claim_uid, device) for device in devices],
        }
        return json.dumps(spec, indent=1, sort_keys=True).encode() + b"\n"

    def _device(self, uid: str, device: Device) -> dict[str, object]:
        offered = self._inventory.devices.get(device.device_name)
        told = [f"{name}={value}" for name, value in sorted(offered.env.items())] if offered else []
        edits: dict[str, object] = {"env": [f"DRA_CLAIM={uid}", f"{_DEVICE}{device.device_name}", *told]}
        if offered and offered.device_nodes:
            edits["deviceNodes"] = [{"path": path} for path in offered.device_nodes]
        return {"name": _name(uid, device.device_name, device.share_id), "containerEdits": edits}

    def _path_of(self, uid: str) -> str:
        return os.path.join(self.path, f"{self._prefix}{uid}{SUFFIX}")


def agree(folder: CdiFolder, wanted: Iterable[ClaimInfoState], untouched: Iterable[str]) -> dict[str, OSError]:
    """Make the files those of the wanted claims and no others, but leave alone those of `untouched` claims.

    Returns the claims whose file could not be written: they have to be prepared again.
    """
    folder.sweep()
    failures: dict[str, OSError] = {}
    claims = {claim.claim_uid: claim for claim in wanted}
    for uid in folder.uids() - claims.keys() - set(untouched):
        folder.remove(uid)
    for uid, claim in claims.items():
        if folder.read(uid) != folder.content(claim):
            try:
                folder.write(claim)
            except OSError as error:
                failures[uid] = error
    return failures


def _name(uid: str, device: str, share_id: str | None) -> str:
    return "-".join(filter(None, [uid, device, share_id]))
