"""Directories of real claims and pod configs, as draState itself keeps them."""

from __future__ import annotations

from pathlib import Path

from checkpointmanager import CheckpointManager
from draState import CLAIMS, POD_CONFIGS, ClaimInfoState, Device, DeviceConfig, DriverState, PodConfig

DRIVER = "gpu.example.com"


def uid(number: int) -> str:
    return f"{number:08x}-414c-343c-1027-c4d1c386bbc4"


def claim(number: int, *pods: str) -> ClaimInfoState:
    device = Device("node-1", f"gpu-{number}", cdi_device_ids=(f"example.com/gpu=gpu-{number}",))
    devices = {DRIVER: DriverState((device,))}
    return ClaimInfoState(uid(number), f"train-{number}", "ml", frozenset(pods or {f"pod-{number}"}), devices)


def make_claims(directory: Path, count: int = 3, *, previous: tuple[int, ...] = ()) -> Path:
    """Claims by their UIDs; those in `previous` have a previous generation, with another pod."""
    with CheckpointManager(directory, CLAIMS, durability="atomic") as manager:
        for number in range(count):
            manager.create_checkpoint(uid(number), claim(number))
        for number in previous:
            manager.create_checkpoint(uid(number), claim(number, "another"))
    return directory


def make_pods(directory: Path) -> Path:
    config = DeviceConfig({"secret": "of the pod"}, uid(7), "train-7", "ml")
    with CheckpointManager(directory, POD_CONFIGS) as manager:
        manager.create_checkpoint("pod-7", PodConfig({"gpu-7": config}))
    return directory
