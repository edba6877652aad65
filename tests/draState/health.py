"""A node on which drivers report the health of devices, with a clock that the test sets."""

from __future__ import annotations

from pathlib import Path

from checkpointmanager import FileStore
from draState import DeviceHealth, DeviceHealthStore, Health, HealthChange

from .stores import WatchedStore

BOOT = "boot-a"
GPU, NIC = "gpu.example.com", "nic.example.com"
HEALTHY, UNHEALTHY, UNKNOWN = Health.HEALTHY, Health.UNHEALTHY, Health.UNKNOWN


def device(
    name: str = "d0", health: Health = HEALTHY, message: str = "", timeout: float = 0, pool: str = "p"
) -> DeviceHealth:
    return DeviceHealth(pool, name, health, message, timeout)


class Untimed(DeviceHealthStore):
    """Its own thread does nothing: it would read the test's clock at arbitrary moments."""

    def _expire_in_time(self) -> None:
        pass


class HealthNode:
    """`store` belongs to the running process. `changes` has the devices of each change, in short form."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.time = 1000.0
        self.boot_id = BOOT
        self.changes: list[tuple[str, list[str]]] = []
        self.start()

    def start(self) -> None:
        self.disk = WatchedStore(FileStore(self.directory))
        self.store = Untimed(self.disk, on_change=self._changed, clock=lambda: self.time, boot_id=self.boot_id)

    def restart(self) -> None:
        """The same as after a kill: the store writes nothing when it closes."""
        self.store.close()
        self.start()

    def report(self, *devices: DeviceHealth, driver: str = GPU) -> list[str]:
        """Report these devices; returns the changes announced."""
        del self.changes[:]
        self.store.report(driver, devices)
        assert [name for name, _ in self.changes] in ([], [driver])
        return [name for _, names in self.changes for name in names]

    def passed(self, seconds: float) -> list[str]:
        """Let this time pass; returns the changes announced."""
        del self.changes[:]
        self.time += seconds
        self.store.expire()
        return [name for _, names in self.changes for name in names]

    def health(self, name: str = "d0", *, driver: str = GPU, pool: str = "p") -> Health:
        return self.store.get(driver, pool, name).health

    def message(self, name: str = "d0") -> str:
        return self.store.get(GPU, "p", name).message

    def writes(self) -> list[str]:
        """Each commit since the last call."""
        operations = [operation for operation, _ in self.disk.calls]
        del self.disk.calls[:]
        return operations

    def file(self, driver: str = GPU) -> Path:
        return self.directory / f"{driver}.json"

    def _changed(self, change: HealthChange) -> None:
        assert change.devices
        self.changes.append((change.driver, sorted(name for _, name in change.devices)))
