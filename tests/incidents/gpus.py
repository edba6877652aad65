"""A node with one GPU driver, and pods that claim GPUs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from checkpointmanager import Event
from draState import (
    Allocation,
    ClaimInfoCache,
    ClaimRef,
    ContainerClaim,
    Device,
    DRAManager,
    Pod,
    PrepareResult,
    ResourceClaim,
)

from .sandboxes import BOOT

DRIVER = "gpu.example.com"
POOL = "node-1"


class GpuDriver:
    """Knows which claim has which device set up; a reboot (a new object) forgets it.

    A claim gets gpu-0 unless `allocations` names another device for it.
    """

    def __init__(self, allocations: Mapping[str, str] | None = None) -> None:
        self.allocations = dict(allocations or {})
        self.set_up: dict[str, str] = {}  # device -> claim UID
        self.prepared: list[str] = []  # the UIDs of all calls
        self.unprepared: list[str] = []
        self.broken = ""  # why every call fails, if it does
        self.before_answer: Callable[[], object] = lambda: None

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        self.prepared += [claim.uid for claim in claims]
        self.before_answer()
        return {claim.uid: self._prepare(claim.uid) for claim in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        self.unprepared += [claim.uid for claim in claims]
        self.before_answer()
        gone = {claim.uid for claim in claims}
        if not self.broken:
            self.set_up = {device: uid for device, uid in self.set_up.items() if uid not in gone}
        return dict.fromkeys(gone, self.broken)

    def _prepare(self, uid: str) -> PrepareResult:
        device = self.allocations.get(uid, "gpu-0")
        if self.broken:
            return PrepareResult(error=self.broken)
        if self.set_up.setdefault(device, uid) != uid:
            return PrepareResult(error=f"device {device} is already allocated to different claim {self.set_up[device]}")
        return PrepareResult((Device(POOL, device, cdi_device_ids=(f"{DRIVER}/gpu={device}",)),))


def pod(uid: str, **claims: str) -> Pod:
    """A pod with one container that uses all its claims, given as name=UID."""
    return Pod(
        uid,
        name=uid,
        namespace="default",
        claims={
            name: ResourceClaim(claim, name, "default", {DRIVER: Allocation()}, reserved_for=frozenset({uid}))
            for name, claim in claims.items()
        },
        containers={"main": tuple(ContainerClaim(name) for name in claims)},
    )


@contextmanager
def node(
    directory: Path,
    driver: GpuDriver,
    *,
    boot: str = BOOT,
    on_event: Callable[[Event], object] | None = None,
) -> Iterator[DRAManager]:
    """The agent from its start to its end. `boot` changes when the machine was rebooted before."""
    cache = ClaimInfoCache(directory, boot_id=boot, on_event=on_event)
    try:
        yield DRAManager(cache, {DRIVER: driver})
    finally:
        cache.close()
