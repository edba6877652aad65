"""A driver's side of a node: hardware in files, which outlive the process; an API server; and a ClaimPreparer."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from draState import (
    ClaimEvent,
    ClaimGone,
    ClaimInfo,
    ClaimInfoCache,
    ClaimInvalid,
    ClaimPhase,
    ClaimPreparer,
    ClaimRef,
    Device,
    DRAError,
    DriverClaim,
    DriverHooks,
    DriverState,
    PrepareResult,
)

from .node import claim_in

GPU, NIC = "gpu.example.com", "nic.example.com"
POOL = "node-1"
PARTITION = {"partition": [7]}


class Server:
    """The API server. `down`: it refuses connections; `hanging`: it does not answer before that is set."""

    def __init__(self) -> None:
        self.claims: dict[str, DriverClaim] = {}
        self.down = False
        self.hanging: threading.Event | None = None

    def allocate(self, uid: str, *devices: Device | str, **more: Any) -> ClaimRef:
        given = [device if isinstance(device, Device) else Device(POOL, device) for device in devices]
        claim = DriverClaim(uid, f"claim-{uid}", "default", tuple(given), pods={f"pod-of-{uid}": "pod"}, **more)
        self.claims[uid] = claim
        return claim.ref

    def look_up(self, ref: ClaimRef) -> DriverClaim:
        if self.hanging:
            self.hanging.wait()
        if self.down:
            raise ConnectionRefusedError("connection refused")
        if ref.uid not in self.claims:
            raise ClaimGone(f"claim {ref.uid} is not there")
        return self.claims[ref.uid]


class Hardware(DriverHooks):
    """A device is set up when its file names the claim. `failing` has the hooks that raise."""

    driver = GPU

    def __init__(self, folder: Path, server: Server) -> None:
        self._folder = folder
        self._server = server
        self.failing: set[str] = set()
        self.error: BaseException = OSError("the hardware is broken")
        self.calls: list[tuple[str, str]] = []
        self.torn_down: list[DriverClaim] = []
        self.one_name_one_device = True
        self.shows_traces = True
        self.running: dict[str, list[str]] | None = {}
        folder.mkdir(parents=True, exist_ok=True)

    def look_up(self, ref: ClaimRef) -> DriverClaim:
        return self._server.look_up(ref)

    def check(self, claim: DriverClaim) -> None:
        if "check" in self.failing:
            raise ClaimInvalid("not on this node")

    def set_up(self, claim: DriverClaim) -> DriverClaim:
        for device in claim.devices:
            file = self._file(device)
            assert not file.exists() or file.read_text() in ("", claim.uid), "one device for two claims"
            file.write_text(claim.uid)
            self._called("set_up", claim)  # fails after part of the work is done
        ready = [replace(device, cdi_device_ids=(f"{GPU}/d={device.device_name}",)) for device in claim.devices]
        return replace(claim, devices=tuple(ready), driver_data=PARTITION)

    def refresh(self, claim: DriverClaim) -> None:
        self._called("refresh", claim)

    def tear_down(self, claim: DriverClaim) -> None:
        self.torn_down.append(claim)
        for device in claim.devices:
            self._file(device).unlink(missing_ok=True)
            self._called("tear_down", claim)

    def users(self, claim: DriverClaim) -> list[str]:
        if self.running is None:
            raise DRAError("no hostPID")
        return self.running.get(claim.uid, [])

    def find(self, uid: str) -> ClaimRef | None:
        if self._server.down:
            raise ConnectionRefusedError("connection refused")
        if uid not in self._server.claims:
            raise ClaimGone(f"claim {uid} is not there")
        return self._server.claims[uid].ref

    def traces(self) -> set[str]:
        return set(self.holdings().values()) if self.shows_traces else set()

    def trace(self, uid: str) -> DriverState | None:
        devices = tuple(Device(POOL, name) for name, owner in sorted(self.holdings().items()) if owner == uid)
        ready = tuple(replace(device, cdi_device_ids=(f"{GPU}/d={device.device_name}",)) for device in devices)
        return DriverState(ready, driver_data=PARTITION) if self.shows_traces and devices else None

    def same_device(self, one: Device, other: Device) -> bool:
        return self.one_name_one_device

    def holdings(self) -> dict[str, str]:
        """Which claim each device is set up for."""
        return {file.name: file.read_text() for file in self._folder.iterdir() if file.read_text()}

    def _called(self, hook: str, claim: DriverClaim) -> None:
        self.calls.append((hook, claim.uid))
        if hook in self.failing:
            raise self.error

    def _file(self, device: Device) -> Path:
        names = [device.device_name, device.share_id, "admin" if device.admin_access else ""]
        return self._folder / "+".join(filter(None, names))


class Choosing(Hardware):
    """Also gives each claim the first virtual function that no other has. `given` is what set_up got, in order."""

    given: ClassVar[list[Any]] = []

    def choose(self, claim: DriverClaim, held: Mapping[str, DriverClaim]) -> Any:
        self._called("choose", claim)
        taken = {other.driver_data["vf"] for other in held.values()}
        return {"vf": next(n for n in range(100) if n not in taken)}

    def set_up(self, claim: DriverClaim) -> DriverClaim:
        self.given.append(claim.driver_data)
        return replace(super().set_up(claim), driver_data=claim.driver_data)

    def trace(self, uid: str) -> DriverState | None:
        return None  # the hardware does not show what was chosen


class DriverNode:
    """A ClaimPreparer with its surroundings. A restart leaves hardware, server and files as they are."""

    hooks = Hardware

    def __init__(self, directory: Path, driver: str = GPU, cache: ClaimInfoCache | None = None, **options: Any) -> None:
        self.directory = directory
        self.driver = driver
        self.server = Server()
        self.options = options
        self.events: list[ClaimEvent] = []
        self.start(cache=cache)

    def start(
        self,
        boot_id: str = "boot-1",
        failing: Iterable[str] = (),
        *,
        shows_traces: bool = True,
        cache: ClaimInfoCache | None = None,
    ) -> None:
        self.hardware = self.hooks(self.directory.parent / "hardware" / self.driver, self.server)
        self.hardware.driver = self.driver
        self.hardware.failing |= set(failing)
        self.hardware.shows_traces = shows_traces
        self.cache = ClaimInfoCache(self.directory, boot_id=boot_id) if cache is None else cache
        self.preparer = ClaimPreparer(self.cache, self.hardware, on_event=self.events.append, **self.options)
        self.preparer.restore()

    def stop(self) -> None:
        self.preparer.close()
        self.cache.close()

    def restart(self, boot_id: str = "boot-1", failing: Iterable[str] = ()) -> None:
        self.stop()
        self.start(boot_id, failing)

    def prepare(self, ref: ClaimRef) -> PrepareResult:
        return self.preparer.prepare([ref])[ref.uid]

    def unprepare(self, ref: ClaimRef) -> str:
        return self.preparer.unprepare([ref])[ref.uid]

    def claim(self, uid: str) -> ClaimInfo:
        """The record of a claim that must be there."""
        return claim_in(self.cache, uid)

    def phase(self, uid: str) -> ClaimPhase | None:
        claim = self.cache.get(uid)
        did = claim.state.driver_states.get(self.driver) if claim else None
        return did.phase if did else None

    def kinds(self) -> list[str]:
        return [str(event.kind) for event in self.events]


class TwoDrivers:
    """Two drivers that share a cache. A restart leaves hardware, servers and files as they are."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cache = ClaimInfoCache(directory, boot_id="boot-1")
        self.gpu, self.nic = (DriverNode(directory, driver, self.cache) for driver in (GPU, NIC))

    def start(self, boot_id: str = "boot-1") -> None:
        self.cache = ClaimInfoCache(self.directory, boot_id=boot_id)
        for driver in (self.gpu, self.nic):
            driver.start(cache=self.cache)

    def stop(self) -> None:
        for driver in (self.gpu, self.nic):
            driver.stop()

    def restart(self, boot_id: str = "boot-1") -> None:
        self.stop()
        self.start(boot_id)


def names(prepared: PrepareResult) -> list[str]:
    """The devices of an answer that must be a success."""
    assert not prepared.error, prepared.error
    return [device.device_name for device in prepared.devices]


def leaks(hardware: Hardware, cache: ClaimInfoCache) -> list[str]:
    """Devices that are set up for a claim that does not hold them."""
    held = {
        (device, claim.uid)
        for claim in cache
        for driver, _, device in claim.state.devices()
        if driver == hardware.driver
    }  # no shares in these scenarios
    return [device for device, uid in hardware.holdings().items() if (device, uid) not in held]


def held_twice(cache: ClaimInfoCache) -> list[str]:
    """Devices that two claims hold."""
    devices = [device for claim in cache for _, _, device in claim.state.devices()]
    return sorted({device for device in devices if devices.count(device) > 1})


def not_set_up(hardware: Hardware, cache: ClaimInfoCache) -> list[str]:
    """Claims that would be answered although one of their devices is not set up."""
    holdings = hardware.holdings()
    return [
        claim.uid
        for claim in cache
        if claim.prepared and _names(claim.state.devices()) - {d for d, uid in holdings.items() if uid == claim.uid}
    ]


def _names(devices: Iterable[tuple[str, str, str]]) -> set[str]:
    return {device for _, _, device in devices}
