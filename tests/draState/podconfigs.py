"""Short ways to write down a device's config, to read the files of a store, and to let its disk fail."""

from __future__ import annotations

import errno
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from checkpointmanager.testing import failing
from draState import DeviceConfig, PodConfigStore

BOOT = "boot-a"
BEFORE = {"pod-1": {"eth0": 1, "eth1": 2}, "pod-2": {"eth0": 3}}


def config_of(claim: str = "claim-1", mtu: int = 1500) -> DeviceConfig:
    """The config of a network device, from the claim with this UID."""
    return DeviceConfig({"mtu": mtu, "routes": ["10.0.0.0/8"]}, claim, f"name-of-{claim}", "default")


def opened(directory: Path) -> PodConfigStore:
    return PodConfigStore(directory, boot_id=BOOT)


def filled(directory: Path) -> PodConfigStore:
    """A store with two pods, of which BEFORE is in `mtus`."""
    store = opened(directory)
    store.set_device_config("pod-1", "eth0", config_of("claim-1", 1))
    store.set_device_config("pod-1", "eth1", config_of("claim-2", 2))
    store.set_device_config("pod-2", "eth0", config_of("claim-1", 3))
    return store


def restarted(store: PodConfigStore, directory: Path) -> dict[str, dict[str, int]]:
    """What the next process serves, in short form."""
    store.close()
    with opened(directory) as after:
        return mtus(after)


def mtus(store: PodConfigStore) -> dict[str, dict[str, int]]:
    """All configs served, in short form: pod -> device -> MTU."""
    found: dict[str, dict[str, int]] = {}
    for pod in store:
        config = store.get_pod_config(pod)
        assert config is not None
        found[pod] = {device.partition("/")[2]: its.config["mtu"] for device, its in config.devices.items()}
    return found


def mtus_on_disk(directory: Path) -> dict[str, dict[str, int]]:
    """The same from the files, all of which must be whole JSON."""
    found: dict[str, dict[str, int]] = {}
    for path in sorted(directory.glob("[!.]*.json")):
        data: dict[str, Any] = json.loads(path.read_bytes())["data"]
        found[path.stem] = {device.partition("/")[2]: its["config"]["mtu"] for device, its in data["devices"].items()}
    return found


def full(directory: Path) -> AbstractContextManager[object]:
    return failing(directory, "write", errno.ENOSPC, lasting=True)


def unsynced(directory: Path, error: int | BaseException = errno.EIO) -> AbstractContextManager[object]:
    """The journal has the change, but it may not survive a power loss."""
    return failing(directory, "fdatasync", error, lasting=True)
